// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/rows.h"
#include "kernels/typed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include "kernels/cpu/simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/tile_product-inl.h"
#include "kernels/cpu/transpose-inl.h"

// Scores are held transposed, with a row for each key and a column for each query. So the running
// maximum and sum of 16 queries are vectors without a horizontal step, and only the query tile
// needs a transposed copy.
HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

constexpr float kMasked = -1e30f;

// Lanes of the vector at query `q` of the tile that may see its key `j`.
HWY_INLINE hn::Mask<F32> visible(F32 d, const KeyTile& tile, int64_t q, int64_t j, int64_t window) {
  const hn::RebindToSigned<F32> di;
  const int64_t key = tile.key + j;
  const auto distance = hn::Iota(di, static_cast<int32_t>(tile.query + q - key));
  auto mask =
      hn::And(hn::Gt(distance, hn::Set(di, -1)),
              hn::Lt(hn::Load(di, tile.starts + q), hn::Set(di, static_cast<int32_t>(key + 1))));
  if (window > 0) mask = hn::And(mask, hn::Lt(distance, hn::Set(di, static_cast<int32_t>(window))));
  return hn::RebindMask(d, mask);
}

// tanh(score / cap): the score after the cap is cap times this.
HWY_INLINE VF32 capped_part(F32 d, VF32 score, float cap) {
  return hn::Tanh(d, hn::Mul(score, hn::Set(d, 1.0f / cap)));
}

// Whether every query of a whole tile sees every key.
HWY_INLINE bool all_visible(const KeyTile& tile, int64_t window) {
  const int64_t last = kTile - 1;
  return tile.query >= tile.key + tile.keys - 1 && tile.starts[last] <= tile.key &&
         (window == 0 || tile.query + last - tile.key < window);
}

// [count, size] rows -> [size, kTile], zero beyond `count`.
void transpose(const float* from, int64_t stride, int64_t count, int64_t size, float* to) {
  transpose_block(from, stride, count, size, to, kTile);
  if (count == kTile) return;
  for (int64_t c = 0; c < size; ++c) std::fill(to + c * kTile + count, to + (c + 1) * kTile, 0.0f);
}

// s[keys, kTile] = k[keys, size] * qt[size, kTile]. For every 16 keys, starts at the first 16
// queries that see one of them.
HWY_INLINE void scores(const KeyTile& tile, const float* k, int64_t k_stride, int64_t size,
                       const float* qt, float* s) {
  constexpr int64_t kStep = 16;
  const int64_t distance = tile.query - tile.key;
  int64_t rows = kStep;
  for (int64_t key = 0; key < tile.keys; key += rows) {
    const int64_t first = std::max<int64_t>(0, key - distance) / kStep * kStep;
    rows = std::min(tile.keys - key, first == 0 ? distance + kStep : kStep);
    tile_product({.m = rows,
                  .n = kTile - first,
                  .k = size,
                  .a = k + key * k_stride,
                  .a_row = k_stride,
                  .a_col = 1,
                  .b = qt + first,
                  .b_row = kTile,
                  .c = s + key * kTile + first,
                  .c_row = kTile});
  }
}

// How scores are scaled and, with a cap, capped.
struct ScoreRule {
  float scale;
  float cap;
  int64_t window;
};

// Turns scores s into exp(rule(s) - max), updates the running maximum and sum, and leaves in `fade`
// the factors for the earlier sums.
template <bool kCapped>
HWY_INLINE void softmax_tile(const KeyTile& tile, const ScoreRule& rule, float* s, float* largest,
                             float* total, float* fade) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF32 factor = hn::Set(d, rule.scale);
  const bool whole = all_visible(tile, rule.window);
  for (int64_t q = 0; q < kTile; q += lanes) {
    const int64_t keys = std::min(tile.keys, tile.query - tile.key + q + lanes);  // visible keys
    const VF32 before = hn::Load(d, largest + q);
    VF32 now = before;
    for (int64_t j = 0; j < keys; ++j) {
      VF32 value = hn::Mul(hn::Load(d, s + j * kTile + q), factor);
      if constexpr (kCapped) value = hn::Mul(capped_part(d, value, rule.cap), hn::Set(d, rule.cap));
      if (!whole) {
        value = hn::IfThenElse(visible(d, tile, q, j, rule.window), value, hn::Set(d, kMasked));
      }
      hn::Store(value, d, s + j * kTile + q);
      now = hn::Max(now, value);
    }
    VF32 sum = hn::Zero(d);
    for (int64_t j = 0; j < keys; ++j) {
      const VF32 value = hn::Load(d, s + j * kTile + q);
      VF32 p = hn::Exp(d, hn::Sub(value, now));
      if (!whole) p = hn::IfThenElseZero(hn::Gt(value, hn::Set(d, kMasked)), p);
      hn::Store(p, d, s + j * kTile + q);
      sum = hn::Add(sum, p);
    }
    for (int64_t j = keys; j < tile.keys; ++j) hn::Store(hn::Zero(d), d, s + j * kTile + q);
    const VF32 faded = hn::Exp(d, hn::Sub(before, now));
    hn::Store(hn::MulAdd(hn::Load(d, total + q), faded, sum), d, total + q);
    hn::Store(now, d, largest + q);
    hn::Store(faded, d, fade + q);
  }
}

void softmax_tile(const KeyTile& tile, const ScoreRule& rule, float* s, float* largest,
                  float* total, float* fade) {
  rule.cap > 0.0f ? softmax_tile<true>(tile, rule, s, largest, total, fade)
                  : softmax_tile<false>(tile, rule, s, largest, total, fade);
}

HWY_INLINE void scale_rows(float* rows, int64_t count, int64_t cols, const float* factors) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < count; ++r) {
    const VF32 factor = hn::Set(d, factors[r]);
    for (int64_t c = 0; c < cols; c += lanes) {
      hn::Store(hn::Mul(hn::Load(d, rows + r * cols + c), factor), d, rows + r * cols + c);
    }
  }
}

// One query tile of one head.
void forward_tile(const AttentionForward& op, int64_t b, int64_t h, int64_t tile_index,
                  float* memory) {
  const ForwardTiles w = forward_tiles(op.head_size, memory);
  const QueryTile own = query_tile(op, tile_index);
  const auto [token, query, queries] = own;
  const int64_t kv = h / (op.heads / op.kv_heads) * op.head_size;
  const int64_t q_stride = stride_or(op.q_stride, op.heads * op.head_size);
  const int64_t k_stride = stride_or(op.k_stride, op.kv_heads * op.head_size);
  const int64_t v_stride = stride_or(op.v_stride, op.kv_heads * op.head_size);
  const int64_t o_stride = stride_or(op.o_stride, op.heads * op.head_size);
  transpose(op.q + (b * op.length + token) * q_stride + h * op.head_size, q_stride, queries,
            op.head_size, w.qt);
  std::fill_n(w.largest, kTile, kMasked);
  std::fill_n(w.total, kTile, 0.0f);
  std::fill_n(w.o, kTile * w.padded, 0.0f);
  const DocumentStarts starts(op, b, own);
  int64_t keys = 0;
  for (int64_t key = first_key_tile(op, query, starts); key < query + queries; key += keys) {
    keys = tile_keys(op, key);
    const KeyTile tile = {query, queries, key, keys, starts.at};
    const int64_t row = op.context.key_row(b, op.batch, key, op.length);
    scores(tile, op.k + row * k_stride + kv, k_stride, op.head_size, w.qt, w.s);
    softmax_tile(tile, {op.scale, op.cap, op.window}, w.s, w.largest, w.total, w.fade);
    scale_rows(w.o, queries, w.padded, w.fade);
    const Rows v = padded_rows(op.v + row * v_stride + kv, v_stride, tile.keys, op.head_size, w.v);
    tile_product({.m = queries,
                  .n = w.padded,
                  .k = tile.keys,
                  .a = w.s,
                  .a_row = 1,
                  .a_col = kTile,
                  .b = v.data,
                  .b_row = v.stride,
                  .c = w.o,
                  .c_row = w.padded,
                  .accumulate = true,
                  .after = query - key});
  }
  for (int64_t r = 0; r < queries; ++r) {
    const float inverse = 1.0f / w.total[r];
    float* o = op.o + (b * op.length + token + r) * o_stride + h * op.head_size;
    const float* sum = w.o + r * w.padded;
    for_vectors(op.head_size, [&](auto d, int64_t c, auto end) HWY_ATTR {
      store_as(d, hn::Mul(load_as(d, sum + c, end), hn::Set(d, inverse)), o + c, end);
    });
    op.lse[(b * op.heads + h) * op.length + token + r] = w.largest[r] + std::log(w.total[r]);
  }
}

// s becomes p = exp(rule(s) - lse), dp becomes ds = rule'(s) * p * (dp - delta).
template <bool kCapped>
HWY_INLINE void gradient_of_scores(const KeyTile& tile, const ScoreRule& rule, const float* lse,
                                   const float* delta, float* s, float* dp) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF32 factor = hn::Set(d, rule.scale);
  const bool whole = all_visible(tile, rule.window);
  for (int64_t j = 0; j < tile.keys; ++j) {
    const int64_t first = std::max<int64_t>(0, tile.key + j - tile.query) / lanes * lanes;
    std::fill_n(s + j * kTile, first, 0.0f);
    std::fill_n(dp + j * kTile, first, 0.0f);
    for (int64_t q = first; q < kTile; q += lanes) {
      float* at = s + j * kTile + q;
      float* d_at = dp + j * kTile + q;
      VF32 exponent = hn::MulSub(hn::Load(d, at), factor, hn::Load(d, lse + q));
      VF32 slope = factor;
      if constexpr (kCapped) {
        const VF32 part = capped_part(d, hn::Mul(hn::Load(d, at), factor), rule.cap);
        exponent = hn::MulSub(part, hn::Set(d, rule.cap), hn::Load(d, lse + q));
        slope = hn::Mul(factor, hn::NegMulAdd(part, part, hn::Set(d, 1.0f)));
      }
      VF32 p = hn::Exp(d, exponent);
      VF32 ds = hn::Mul(hn::Mul(p, slope), hn::Sub(hn::Load(d, d_at), hn::Load(d, delta + q)));
      if (!whole) {
        const auto mask = visible(d, tile, q, j, rule.window);
        p = hn::IfThenElseZero(mask, p);
        ds = hn::IfThenElseZero(mask, ds);
      }
      hn::Store(p, d, at);
      hn::Store(ds, d, d_at);
    }
  }
}

void gradient_of_scores(const KeyTile& tile, const ScoreRule& rule, const float* lse,
                        const float* delta, float* s, float* dp) {
  rule.cap > 0.0f ? gradient_of_scores<true>(tile, rule, lse, delta, s, dp)
                  : gradient_of_scores<false>(tile, rule, lse, delta, s, dp);
}

HWY_INLINE float dot(const float* x, const float* y, int64_t count) {
  const F32 f32;
  VF32 sum = hn::Zero(f32);
  for_vectors(count, [&](auto d, int64_t i, auto end) HWY_ATTR {
    sum = hn::MulAdd(load_as(d, x + i, end), load_as(d, y + i, end), sum);
  });
  return hn::GetLane(hn::SumOfLanes(f32, sum));
}

// Adds to dk, dv and computes dq, for one query tile of one head.
void backward_tile(const AttentionBackward& op, int64_t b, int64_t h, int64_t tile_index,
                   const KeySums& dk, const KeySums& dv, float* memory) {
  const BackwardTiles w = backward_tiles(op.head_size, memory);
  const int64_t size = op.head_size;
  const QueryTile own = query_tile(op, tile_index);
  const auto [token, query, queries] = own;
  const int64_t kv = h / (op.heads / op.kv_heads) * size;
  const int64_t k_stride = stride_or(op.k_stride, op.kv_heads * size);
  const int64_t v_stride = stride_or(op.v_stride, op.kv_heads * size);
  const QueryRows rows = query_rows(op, b, h, token);
  transpose(rows.q, rows.q_stride, queries, size, w.qt);
  transpose(rows.d_o, rows.d_o_stride, queries, size, w.d_ot);
  const Rows q = padded_rows(rows.q, rows.q_stride, queries, size, w.q);
  const Rows d_o = padded_rows(rows.d_o, rows.d_o_stride, queries, size, w.d_o);
  for (int64_t r = 0; r < kTile; ++r) {
    w.lse[r] = r < queries ? rows.lse[r] : std::numeric_limits<float>::infinity();
    w.delta[r] =
        r < queries ? dot(rows.d_o + r * rows.d_o_stride, rows.o + r * rows.o_stride, size) : 0.0f;
  }
  std::fill_n(w.dq, kTile * w.padded, 0.0f);
  const DocumentStarts starts(op, b, own);
  int64_t keys = 0;
  for (int64_t key = first_key_tile(op, query, starts); key < query + queries; key += keys) {
    keys = tile_keys(op, key);
    const KeyTile tile = {query, queries, key, keys, starts.at};
    const int64_t row = op.context.key_row(b, op.batch, key, op.length);
    const float* k = op.k + row * k_stride + kv;
    scores(tile, k, k_stride, size, w.qt, w.s);
    scores(tile, op.v + row * v_stride + kv, v_stride, size, w.d_ot, w.dp);
    gradient_of_scores(tile, {op.scale, op.cap, op.window}, w.lse, w.delta, w.s, w.dp);
    const Rows k_rows = padded_rows(k, k_stride, tile.keys, size, w.k);
    TileProduct product = {.m = tile.keys,
                           .n = w.padded,
                           .k = queries,
                           .a = w.s,
                           .a_row = kTile,
                           .a_col = 1,
                           .b = d_o.data,
                           .b_row = d_o.stride,
                           .c = dv.at(op, key),
                           .c_row = dv.stride,
                           .accumulate = true,
                           .before = query - key};
    tile_product(product);
    product.a = w.dp;
    product.b = q.data;
    product.b_row = q.stride;
    product.c = dk.at(op, key);
    product.c_row = dk.stride;
    tile_product(product);
    tile_product({.m = queries,
                  .n = w.padded,
                  .k = tile.keys,
                  .a = w.dp,
                  .a_row = 1,
                  .a_col = kTile,
                  .b = k_rows.data,
                  .b_row = k_rows.stride,
                  .c = w.dq,
                  .c_row = w.padded,
                  .accumulate = true,
                  .after = query - key});
  }
  for (int64_t r = 0; r < queries; ++r) {
    std::copy_n(w.dq + r * w.padded, size, rows.dq + r * rows.dq_stride);
  }
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
namespace cpu {
namespace {

HWY_EXPORT(forward_tile);
HWY_EXPORT(backward_tile);

template <typename Op>
void check(const Op& op) {
  STRATA_CHECK(op.batch > 0 && op.length > 0 && op.length < (int64_t{1} << 30) && op.window >= 0 &&
               op.cap >= 0.0f);
  STRATA_CHECK(op.heads > 0 && op.kv_heads > 0 && op.head_size > 0 && op.heads % op.kv_heads == 0);
  STRATA_CHECK(op.context.ranks == 1 || op.length % 2 == 0);
  STRATA_CHECK(op.workspace.bytes >= workspace_bytes(op, thread_count()));
}

// Positions of a whole sequence, in pieces of ContextPart::piece() that lie without a gap.
int64_t positions_of(const AttentionBackward& op) {
  return op.length * op.context.ranks;
}

// Where a task sums dk and dv: in the output itself if its rows are whole vectors and there is one
// part.
struct Sums {
  bool direct;
  int64_t splits;
  int64_t padded;
  int64_t part;  // elements of one array, [positions, padded]
  float* base;   // [splits][batch][kv_heads][2][part]
};

Sums sums_of(const AttentionBackward& op, int threads) {
  const int64_t splits = splits_of(op);
  const int64_t padded = round_up(op.head_size, 16);
  std::byte* after_tiles = op.workspace.data + threads * backward_tile_bytes(op.head_size);
  return {splits == 1 && padded == op.head_size, splits, padded, positions_of(op) * padded,
          reinterpret_cast<float*>(after_tiles)};
}

void zero(const AttentionBackward& op, const KeySums& sums, int64_t cols) {
  for (int64_t j = 0; j < positions_of(op); ++j) std::fill_n(sums.at(op, j), cols, 0.0f);
}

void add_parts(const AttentionBackward& op, const Sums& sums) {
  const int64_t size = op.head_size;
  const int64_t heads = op.batch * op.kv_heads;
  parallel_for(heads * 2 * ceil_div(positions_of(op), kTile), [&](int64_t index, int) {
    const int64_t which = index % 2;
    const int64_t head = index / 2 % heads;
    const int64_t first = index / 2 / heads * kTile;
    const int64_t stride = stride_or(which == 0 ? op.dk_stride : op.dv_stride, op.kv_heads * size);
    float* base = (which == 0 ? op.dk : op.dv) + head % op.kv_heads * size;
    const KeySums out = {base, stride, head / op.kv_heads, op.batch};
    const KeySums parts = {sums.base + (head * 2 + which) * sums.part, sums.padded};
    for (int64_t j = first; j < std::min(positions_of(op), first + kTile); ++j) {
      const float* part = parts.at(op, j);
      std::copy_n(part, size, out.at(op, j));
      for (int64_t s = 1; s < sums.splits; ++s) {
        part += heads * 2 * sums.part;
        add_to(part, out.at(op, j), size);
      }
    }
  });
}

}  // namespace

void attention_forward(const AttentionForward& op) {
  check(op);
  const int64_t tiles = query_tiles(op);
  const int64_t heads = op.batch * op.heads;
  parallel_for(heads * tiles, [&](int64_t index, int slot) {
    std::byte* memory = op.workspace.data + slot * forward_tile_bytes(op.head_size);
    const int64_t head = index % heads;
    HWY_DYNAMIC_DISPATCH(forward_tile)
    (op, head / op.heads, head % op.heads, tiles - 1 - index / heads,
     reinterpret_cast<float*>(memory));
  });
}

void attention_backward(const AttentionBackward& op) {
  check(op);
  const Sums sums = sums_of(op, thread_count());
  const int64_t group = op.heads / op.kv_heads;
  const int64_t heads = op.batch * op.kv_heads;
  const int64_t dk_stride = stride_or(op.dk_stride, op.kv_heads * op.head_size);
  const int64_t dv_stride = stride_or(op.dv_stride, op.kv_heads * op.head_size);
  parallel_for(heads * sums.splits, [&](int64_t index, int slot) {
    float* memory =
        reinterpret_cast<float*>(op.workspace.data + slot * backward_tile_bytes(op.head_size));
    const int64_t b = index % heads / op.kv_heads;
    const int64_t kv = index % heads % op.kv_heads;
    KeySums dk = {sums.base + index * 2 * sums.part, sums.padded};
    KeySums dv = {dk.first + sums.part, sums.padded};
    if (sums.direct) {
      dk = {op.dk + kv * op.head_size, dk_stride, b, op.batch};
      dv = {op.dv + kv * op.head_size, dv_stride, b, op.batch};
    }
    zero(op, dk, sums.padded);
    zero(op, dv, sums.padded);
    const int64_t per_split = group / sums.splits;
    const int64_t first = kv * group + index / heads * per_split;
    for (int64_t h = first; h < first + per_split; ++h) {
      for (int64_t tile = 0; tile < query_tiles(op); ++tile) {
        HWY_DYNAMIC_DISPATCH(backward_tile)(op, b, h, tile, dk, dv, memory);
      }
    }
  });
  if (!sums.direct) add_parts(op, sums);
}

}  // namespace cpu

}  // namespace strata::kernels
#endif  // HWY_ONCE
