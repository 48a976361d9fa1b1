// SPDX-License-Identifier: Apache-2.0
#include "kernels/cached_attention.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/typed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cached_attention.cpp"
#include "kernels/cpu/simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/cpu/cache_tiles.h"
#include "kernels/cpu/tile_product-inl.h"

// Up to kCacheQueries queries of one row and kv head go over the tiles of the cache together. Tiles
// begin at multiples of kCacheTile positions, and every sum is a chain over ascending positions of
// its query alone, so the bits do not depend on which queries are together: a position that a query
// does not see adds zero times a finite value to its sums.
HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

constexpr float kUnseen = -1e30f;
static_assert(kCacheQueries == kBlockRows);

// The maximum and the sum of a query's weights so far.
struct Softmax {
  float largest = kUnseen;
  float total = 0.0f;
};

template <bool kCapped>
HWY_INLINE VF32 score_of(F32 d, VF32 product, float scale, float cap) {
  const VF32 score = hn::Mul(product, hn::Set(d, scale));
  if constexpr (!kCapped) return score;
  return hn::Mul(hn::Tanh(d, hn::Mul(score, hn::Set(d, 1.0f / cap))), hn::Set(d, cap));
}

// Turns the products s[kCacheTile] of a query and the keys of a tile into weights, zero outside of
// keys [first, end). Returns the factor of the sums so far.
template <bool kCapped>
HWY_INLINE float weigh(const CachedAttention& op, int64_t first, int64_t end, float* s,
                       Softmax& softmax) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF32 most = hn::Set(d, softmax.largest);
  const auto seen = [&](int64_t j) HWY_ATTR {
    const auto key = hn::Iota(di, static_cast<int32_t>(j));
    return hn::RebindMask(d, hn::And(hn::Gt(key, hn::Set(di, static_cast<int32_t>(first - 1))),
                                     hn::Lt(key, hn::Set(di, static_cast<int32_t>(end)))));
  };
  for (int64_t j = 0; j < kCacheTile; j += lanes) {
    const VF32 score = score_of<kCapped>(d, hn::Load(d, s + j), op.scale, op.cap);
    const VF32 value = hn::IfThenElse(seen(j), score, hn::Set(d, kUnseen));
    hn::Store(value, d, s + j);
    most = hn::Max(most, value);
  }
  const float largest = hn::GetLane(hn::MaxOfLanes(d, most));
  VF32 sum = hn::Zero(d);
  for (int64_t j = 0; j < kCacheTile; j += lanes) {
    const VF32 p = hn::Exp(d, hn::Sub(hn::Load(d, s + j), hn::Set(d, largest)));
    const VF32 kept = hn::IfThenElseZero(seen(j), p);
    hn::Store(kept, d, s + j);
    sum = hn::Add(sum, kept);
  }
  const float fade = largest == softmax.largest
                         ? 1.0f
                         : hn::GetLane(hn::Exp(d, hn::Set(d, softmax.largest - largest)));
  softmax.total = softmax.total * fade + hn::GetLane(hn::SumOfLanes(d, sum));
  softmax.largest = largest;
  return fade;
}

HWY_INLINE void scale_row(float* row, int64_t count, float factor) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c < count; c += lanes) {
    hn::Store(hn::Mul(hn::Load(d, row + c), hn::Set(d, factor)), d, row + c);
  }
}

// Queries [begin, end) of a run, counted token by token and in a token head by head.
HWY_INLINE void attend_queries(const CachedAttention& op, const TokenRun& run, int64_t begin,
                               int64_t end, const QueryTiles& w) {
  const int64_t group = op.heads / op.kv_heads;
  const int64_t count = end - begin;
  const int64_t size = op.head_size;
  const int64_t q_stride = stride_or(op.q_stride, op.heads * size);
  const float* q = op.q;
  Softmax softmax[kCacheQueries];
  const auto token_of = [&](int64_t i) { return run.first + (begin + i) / group; };
  const auto head_of = [&](int64_t i) { return run.kv * group + (begin + i) % group; };
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(q + token_of(i) * q_stride + head_of(i) * size, size, w.q + i * size);
  }
  std::fill_n(w.o, count * w.padded, 0.0f);
  const auto first_of = [&](int64_t i) {
    const int64_t last = op.position[token_of(i)];
    return op.window == 0 ? 0 : std::max<int64_t>(0, last - op.window + 1);
  };
  const int64_t last = op.position[token_of(count - 1)];
  for (int64_t key = first_of(0) / kCacheTile * kCacheTile; key <= last; key += kCacheTile) {
    const CacheTile tile = tile_at(op, op.row[run.first], run.kv, key);
    tile_product({.m = count,
                  .n = kCacheTile,
                  .k = size,
                  .a = w.q,
                  .a_row = size,
                  .a_col = 1,
                  .b = tile.keys,
                  .b_row = kCacheTile,
                  .c = w.s,
                  .c_row = kCacheTile});
    for (int64_t i = 0; i < count; ++i) {
      const int64_t from = first_of(i) - key, to = op.position[token_of(i)] + 1 - key;
      float* s = w.s + i * kCacheTile;
      const float fade = op.cap > 0.0f ? weigh<true>(op, from, to, s, softmax[i])
                                       : weigh<false>(op, from, to, s, softmax[i]);
      scale_row(w.o + i * w.padded, w.padded, fade);
    }
    tile_product({.m = count,
                  .n = w.padded,
                  .k = std::min(kCacheTile, last + 1 - key),
                  .a = w.s,
                  .a_row = kCacheTile,
                  .a_col = 1,
                  .b = tile.values,
                  .b_row = w.padded,
                  .c = w.o,
                  .c_row = w.padded,
                  .accumulate = true});
  }
  float* o = op.o;
  const int64_t o_stride = stride_or(op.o_stride, op.heads * size);
  for (int64_t i = 0; i < count; ++i) {
    scale_row(w.o + i * w.padded, w.padded, 1.0f / softmax[i].total);
    std::copy_n(w.o + i * w.padded, size, o + token_of(i) * o_stride + head_of(i) * size);
  }
}

void attend_run(const CachedAttention& op, const TokenRun& run, float* memory) {
  const QueryTiles tiles = query_tiles(op.head_size, memory);
  const int64_t queries = run.count * (op.heads / op.kv_heads);
  for (int64_t begin = 0; begin < queries; begin += kCacheQueries) {
    attend_queries(op, run, begin, std::min(queries, begin + kCacheQueries), tiles);
  }
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
namespace cpu {
namespace {

HWY_EXPORT(attend_run);

constexpr int64_t kRunTokens = 12;  // of a task, where there are tasks enough

void check(const CachedAttention& op) {
  STRATA_CHECK(op.tokens > 0 && op.heads > 0 && op.kv_heads > 0 && op.heads % op.kv_heads == 0);
  STRATA_CHECK(op.head_size > 0 && op.window >= 0 && op.cap >= 0.0f && op.rows > 0);
  STRATA_CHECK(op.positions > 0 && op.positions % kCacheTile == 0);
  STRATA_CHECK(op.workspace.bytes >= workspace_bytes(op, thread_count()));
}

// Puts one head of a token's keys and values into the cache.
void append(const CachedAttention& op, int64_t token, int64_t kv) {
  const int64_t size = op.head_size, width = op.kv_heads * size, padded = round_up(size, 16);
  const int64_t position = op.position[token];
  STRATA_CHECK(op.row[token] >= 0 && op.row[token] < op.rows && position >= 0);
  const float* k = op.k + (token * stride_or(op.k_stride, width) + kv * size);
  const float* v = op.v + (token * stride_or(op.v_stride, width) + kv * size);
  const int64_t in_tile = position % kCacheTile;
  const CacheTile tile = tile_at(op, op.row[token], kv, position - in_tile);
  for (int64_t d = 0; d < size; ++d) tile.keys[d * kCacheTile + in_tile] = k[d];
  float* values = tile.values + in_tile * padded;
  std::copy_n(v, size, values);
  std::fill(values + size, values + padded, 0.0f);
}

// Calls body(run) for the runs of tokens of one row among tokens [begin, end).
template <typename Body>
void for_runs(const CachedAttention& op, int64_t begin, int64_t end, const Body& body) {
  while (begin < end) {
    int64_t next = begin + 1;
    while (next < end && op.row[next] == op.row[begin]) ++next;
    body(begin, next - begin);
    begin = next;
  }
}

}  // namespace

void cached_attention(const CachedAttention& op) {
  check(op);
  constexpr int64_t kBlock = 64;
  parallel_for(ceil_div(op.tokens * op.kv_heads, kBlock), [&](int64_t block, int) {
    const int64_t end = std::min(op.tokens * op.kv_heads, (block + 1) * kBlock);
    for (int64_t i = block * kBlock; i < end; ++i) append(op, i / op.kv_heads, i % op.kv_heads);
  });
  const int64_t tokens = op.tokens * op.kv_heads < 256 ? 1 : kRunTokens;
  parallel_for(ceil_div(op.tokens, tokens) * op.kv_heads, [&](int64_t task, int slot) {
    float* memory =
        reinterpret_cast<float*>(op.workspace.data + slot * query_tile_bytes(op.head_size));
    const int64_t begin = task / op.kv_heads * tokens;
    for_runs(op, begin, std::min(op.tokens, begin + tokens), [&](int64_t first, int64_t count) {
      HWY_DYNAMIC_DISPATCH(attend_run)(op, {first, count, task % op.kv_heads}, memory);
    });
  });
}

}  // namespace cpu

}  // namespace strata::kernels
#endif  // HWY_ONCE
