// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/ops/attention_rows.h"
#include "kernels/cuda/ops/matmul.h"

// Attention as products and rows of softmax, by tiles of query rows: for any head size, group,
// window, cap and type. A tile has one query head of each key head, so that its products are one
// batch. The products skip keys that no row of the tile sees.
namespace strata::kernels::cuda {

// One call: makes operands for a tile, and runs the steps of both directions.
template <typename On, typename Op>
class TiledAttention {
 public:
  TiledAttention(On& on, const Op& op, bool backward)
      : on_(on), op_(op), layout_(attention_layout(op, op.q.dtype, backward)) {
    STRATA_CHECK(op.batch > 0 && op.length > 0 && op.heads > 0 && op.kv_heads > 0 &&
                 op.head_size > 0 && op.window >= 0 && op.cap >= 0.0f &&
                 op.heads % op.kv_heads == 0);
    STRATA_CHECK(op.workspace.bytes >= layout_.bytes);
  }

  template <typename Step>
  void each_tile(int64_t batch, const Step& step) const {
    for (int64_t head = 0; head < group(); ++head) {
      for (int64_t row = 0; row < op_.length; row += layout_.rows) {
        const int64_t end = std::min(op_.length, row + layout_.rows);
        const int64_t key = op_.window > 0 ? std::max<int64_t>(0, row - op_.window + 1) : 0;
        step(AttentionTile{batch, head, row, end - row, key, end - key,
                           round_up(end - key, kScoresMultiple)});
      }
    }
  }

  int64_t group() const { return op_.heads / op_.kv_heads; }
  int64_t blocks(const AttentionTile& tile) const { return tile.rows * op_.kv_heads; }
  int threads(const AttentionTile& tile) const { return row_threads(tile.keys); }
  TileRows rows(const AttentionTile& tile) const {
    return {tile, op_.length, op_.heads, group(), op_.window, op_.starts, op_.scale, op_.cap};
  }

  float* floats(int64_t offset) const {
    return reinterpret_cast<float*>(op_.workspace.data + offset);
  }
  const AttentionLayout& layout() const { return layout_; }
  Interior inside(int64_t offset) const { return {op_.workspace.data + offset, op_.q.dtype}; }

  // The tile's rows of a tensor of query heads, and its keys' of one of key heads.
  template <typename Pointer>
  Pointer query_data(const AttentionTile& tile, Pointer data, int64_t stride) const {
    return data + ((tile.batch * op_.length + tile.row) * stride + tile.group_head * op_.head_size);
  }
  Operand queries(const AttentionTile& tile, ConstInterior data, int64_t given) const {
    const int64_t stride = query_stride(given);
    return {.data = query_data(tile, data, stride),
            .stride = stride,
            .batch_stride = group() * op_.head_size};
  }
  Operand keys(const AttentionTile& tile, ConstInterior data, int64_t given) const {
    const int64_t stride = stride_or(given, op_.kv_heads * op_.head_size);
    return {.data = data + (tile.batch * op_.length + tile.key) * stride,
            .stride = stride,
            .batch_stride = op_.head_size};
  }
  int64_t query_stride(int64_t given) const { return stride_or(given, op_.heads * op_.head_size); }

  // scores[rows, keys] = queries · keys
  void score(const AttentionTile& tile, const Operand& queries, const Operand& keys,
             float* scores) const {
    on_.product({.m = tile.rows,
                 .n = tile.keys,
                 .k = op_.head_size,
                 .batches = op_.kv_heads,
                 .a = queries,
                 .b = transpose(keys),
                 .c = {scores, tile.stride, tile.rows * tile.stride},
                 .workspace = library()});
  }
  // to[rows, D] = weights[rows, keys] * keys[keys, D]
  void mix_keys(const AttentionTile& tile, Interior weights, const Operand& keys, Interior to,
                int64_t given) const {
    const int64_t stride = query_stride(given);
    on_.product({.m = tile.rows,
                 .n = op_.head_size,
                 .k = tile.keys,
                 .batches = op_.kv_heads,
                 .a = {weights, tile.stride, false, tile.rows * tile.stride},
                 .b = keys,
                 .c = {query_data(tile, to, stride), stride, group() * op_.head_size},
                 .workspace = library()});
  }
  // sums[keys, D] += weights[rows, keys]^T * queries[rows, D]
  void mix_queries(const AttentionTile& tile, Interior weights, const Operand& queries,
                   float* sums) const {
    const int64_t width = op_.kv_heads * op_.head_size;
    on_.product({.m = tile.keys,
                 .n = op_.head_size,
                 .k = tile.rows,
                 .batches = op_.kv_heads,
                 .a = {weights, tile.stride, true, tile.rows * tile.stride},
                 .b = queries,
                 .c = {sums + tile.key * width, width, op_.head_size},
                 .accumulate = true,
                 .workspace = library()});
  }

 private:
  Workspace library() const { return {op_.workspace.data + layout_.library_offset, kLibraryBytes}; }

  On& on_;
  const Op& op_;
  const AttentionLayout layout_;
};

template <typename On>
void attention_forward(On& on, const AttentionForward& op) {
  if (on.fused(op)) return;
  const TiledAttention<On, AttentionForward> tiled(on, op, false);
  float* scores = tiled.floats(0);
  const Interior p = tiled.inside(tiled.layout().probabilities_offset);
  for (int64_t batch = 0; batch < op.batch; ++batch) {
    tiled.each_tile(batch, [&](const AttentionTile& tile) {
      tiled.score(tile, tiled.queries(tile, op.q, op.q_stride), tiled.keys(tile, op.k, op.k_stride),
                  scores);
      with_inside(p.dtype, [&](auto kind) {
        using I = decltype(kind);
        on.blocks(tiled.blocks(tile), tiled.threads(tile),
                  SoftmaxRow<I>{tiled.rows(tile), scores, elements<I>(p.data), op.lse});
      });
      tiled.mix_keys(tile, p, tiled.keys(tile, op.v, op.v_stride), op.o, op.o_stride);
    });
  }
}

// y[row, :] = x[row, :], dense f32 to rows of the interior.
template <typename I>
struct NarrowPack {
  const float* x;
  typename I::Stored* y;
  int64_t cols, stride;
  STRATA_HOST_DEVICE void operator()(int64_t row, int64_t col) const {
    const Four four = load_four<F32, false>(x + row * cols + col, cols - col);
    store_four<I, false>(y + row * stride + col, cols - col, four);
  }
};

template <typename On>
void store_sums(On& on, const AttentionBackward& op, int64_t batch, const float* sums, Interior to,
                int64_t given) {
  const int64_t width = op.kv_heads * op.head_size, stride = stride_or(given, width);
  with_inside(to.dtype, [&](auto kind) {
    using I = decltype(kind);
    auto* first = elements<I>((to + batch * op.length * stride).data);
    on.grid(op.length, width, NarrowPack<I>{sums, first, width, stride});
  });
}

template <typename On>
void attention_backward(On& on, const AttentionBackward& op) {
  if (on.fused(op)) return;
  const TiledAttention<On, AttentionBackward> tiled(on, op, true);
  const AttentionLayout& layout = tiled.layout();
  float* scores = tiled.floats(0);
  float* dp = tiled.floats(layout.gradients_offset);
  float* dk = tiled.floats(layout.keys_offset);
  float* dv = tiled.floats(layout.values_offset);
  const Interior p = tiled.inside(layout.probabilities_offset);
  const Interior ds = tiled.inside(layout.narrow_gradients_offset);
  const int64_t sums = op.length * op.kv_heads * op.head_size;
  for (int64_t batch = 0; batch < op.batch; ++batch) {
    fill(on, {.count = sums, .y = dk});
    fill(on, {.count = sums, .y = dv});
    tiled.each_tile(batch, [&](const AttentionTile& tile) {
      const Operand q = tiled.queries(tile, op.q, op.q_stride);
      const Operand d_o = tiled.queries(tile, op.d_o, op.d_o_stride);
      const Operand k = tiled.keys(tile, op.k, op.k_stride);
      tiled.score(tile, q, k, scores);
      tiled.score(tile, d_o, tiled.keys(tile, op.v, op.v_stride), dp);
      with_inside(p.dtype, [&](auto kind) {
        using I = decltype(kind);
        on.blocks(tiled.blocks(tile), tiled.threads(tile),
                  SoftmaxGradientRow<I>{tiled.rows(tile), scores, dp, elements<I>(p.data),
                                        elements<I>(ds.data), op.lse, elements<I>(op.o.data),
                                        elements<I>(op.d_o.data), tiled.query_stride(op.o_stride),
                                        tiled.query_stride(op.d_o_stride), op.head_size});
      });
      tiled.mix_keys(tile, ds, k, op.dq, op.dq_stride);
      tiled.mix_queries(tile, ds, q, dk);
      tiled.mix_queries(tile, p, d_o, dv);
    });
    store_sums(on, op, batch, dk, op.dk, op.dk_stride);
    store_sums(on, op, batch, dv, op.dv, op.dv_stride);
  }
}

}  // namespace strata::kernels::cuda
