// SPDX-License-Identifier: Apache-2.0
// How much scratch an op takes, computed from its shape. This needs no kernel, so a planner for
// another machine links no kernels.
#include <algorithm>

#include "engine/base/units.h"
#include "kernels/attention.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/cache_tiles.h"
#include "kernels/cpu/cross_entropy_layout.h"
#include "kernels/cpu/panel_passes.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/weight_product.h"
#include "kernels/layer_norm.h"
#include "kernels/norm.h"
#include "kernels/sum_squares.h"

namespace strata::kernels {

int64_t workspace_bytes(const MatMulForward&, int threads) {
  return std::max(threads * cpu::weight_product_bytes(), cpu::panels_bytes(threads));
}
int64_t workspace_bytes(const MatMulInput&, int threads) {
  return std::max(threads * cpu::weight_product_bytes(), cpu::panels_bytes(threads));
}
int64_t workspace_bytes(const MatMulWeight&, int threads) {
  return std::max(threads * cpu::kProductScratchBytes, cpu::panels_bytes(threads));
}

int64_t workspace_bytes(const AttentionForward& op, int threads) {
  return threads * cpu::forward_tile_bytes(op.head_size);
}

int64_t workspace_bytes(const CachedAttention& op, int threads) {
  return threads * cpu::query_tile_bytes(op.head_size);
}

// The cpu backend's layout is the largest of all.
int64_t cache_bytes(const CachedAttention& op, DType interior) {
  return cpu::cache_floats(op) * bytes_of(interior);
}

int64_t workspace_bytes(const AttentionBackward& op, int threads) {
  const int64_t splits = cpu::splits_of(op);
  const int64_t padded = round_up(op.head_size, 16);
  const bool direct = splits == 1 && padded == op.head_size;
  const int64_t keys = op.batch * op.length * op.context.ranks;
  const int64_t sums = direct ? 0 : splits * op.kv_heads * 2 * keys * padded * 4;
  return threads * cpu::backward_tile_bytes(op.head_size) + sums;
}

int64_t workspace_bytes(const RmsNormBackward& op, int) {
  return ceil_div(op.rows, cpu::kShareRows) * op.cols * 4;
}

int64_t workspace_bytes(const LayerNormBackward& op, int) {
  return 2 * ceil_div(op.rows, cpu::kShareRows) * op.cols * 4;
}

int64_t cross_entropy_chunk_rows(int64_t vocabulary) {
  return std::clamp<int64_t>(cpu::kLogitsOfChunk / vocabulary / 64 * 64, 128, 1024);
}

int64_t workspace_bytes(const LinearCrossEntropy& op, int threads) {
  const cpu::CrossEntropyLayout layout = cpu::layout_of(op);
  return layout.product_offset + workspace_bytes(cpu::logits_product(op, layout.rows), threads);
}

int64_t workspace_bytes(const SumSquares& op, int) {
  return ceil_div(range_numel(op), kSumSquaresBlock) * static_cast<int64_t>(sizeof(double));
}

}  // namespace strata::kernels
