// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cached_attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/layer_norm.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/sum_squares.h"
#include "kernels/typed.h"

// The layout of each op's workspace on a CUDA device: functions of shapes, the weights' type and
// the interior's type alone, for planners and for the ops.
namespace strata::kernels::cuda {

inline constexpr int64_t kLibraryBytes = int64_t{32} << 20;  // for one product of cuBLASLt
inline constexpr int64_t kWorkspaceAlignment = 256;
inline constexpr int64_t kShareRows = 32;  // rows of one share of a sum over rows

constexpr int64_t aligned_bytes(int64_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

// f32 sums over blocks of rows: [ceil(rows / kShareRows), cols].
constexpr int64_t shares_bytes(int64_t rows, int64_t cols) {
  return (rows + kShareRows - 1) / kShareRows * cols * 4;
}

// A product takes operands of one type. Where weights and interior differ, one of them is f32, and
// the other operand is widened in scratch.
inline int64_t widened_bytes(DType weights, int64_t weight_count, DType interior,
                             int64_t interior_count) {
  if (weights == interior) return 0;
  return aligned_bytes(4 * (weights == DType::kF32 ? interior_count : weight_count));
}

inline int64_t bytes_needed(const MatMulForward& op, DType interior) {
  if (op.by_row) return 0;
  return kLibraryBytes +
         widened_bytes(op.dtype, op.outputs * op.inputs, interior, op.rows * op.inputs);
}
inline int64_t bytes_needed(const MatMulInput& op, DType interior) {
  return kLibraryBytes +
         widened_bytes(op.dtype, op.outputs * op.inputs, interior, op.rows * op.outputs);
}
inline int64_t bytes_needed(const MatMulWeight& op, DType) {
  return std::max(kLibraryBytes, shares_bytes(op.rows, op.outputs));
}
inline int64_t bytes_needed(const RmsNormBackward& op, DType) {
  return shares_bytes(op.rows * op.groups, op.cols);
}
inline int64_t bytes_needed(const LayerNormBackward& op, DType) {
  return shares_bytes(op.rows, op.cols);
}
// A sum for each block of each range, of which all have the blocks of the first.
inline int64_t blocks_of_range(const SumSquares& op) {
  return ceil_div(range_numel(op), kSumSquaresBlock);
}
inline int64_t bytes_needed(const SumSquares& op, DType) {
  return ranges_of(op) * blocks_of_range(op) * static_cast<int64_t>(sizeof(double));
}

// Logits of a chunk of rows, their gradients in the type of the products, losses of rows, the
// widened operand, and what the products need.
struct CrossEntropyLayout {
  int64_t rows = 0;  // of a chunk
  int64_t gradients_offset = 0, losses_offset = 0, widened_offset = 0, library_offset = 0;
  int64_t bytes = 0;
};
inline CrossEntropyLayout layout_of(const LinearCrossEntropy& op, DType interior) {
  constexpr int64_t kLogitsOfChunk = int64_t{1} << 27;  // many, because each chunk reads all of dw
  const int64_t most = std::clamp<int64_t>(kLogitsOfChunk / op.vocabulary / 64 * 64, 64, 4096);
  const int64_t rows = std::min(op.rows, most), logits = rows * op.vocabulary;
  const bool halves = op.dtype == interior && interior != DType::kF32;
  CrossEntropyLayout layout = {.rows = rows};
  layout.gradients_offset = halves ? aligned_bytes(logits * 4) : 0;  // else over the logits
  layout.losses_offset = layout.gradients_offset + aligned_bytes(logits * (halves ? 2 : 4));
  layout.widened_offset = layout.losses_offset + aligned_bytes(rows * 8);
  layout.library_offset = layout.widened_offset + widened_bytes(op.dtype, op.vocabulary * op.cols,
                                                                interior, rows * op.cols);
  layout.bytes = layout.library_offset + kLibraryBytes;
  return layout;
}
inline int64_t bytes_needed(const LinearCrossEntropy& op, DType interior) {
  return layout_of(op, interior).bytes;
}

// Scores of a tile of query rows against all keys that they see, for one query head of each key
// head: in f32, and in the interior's type where that is another. Backward has the gradients of
// the probabilities too, and f32 sums of dk and dv of one sequence.
struct AttentionLayout {
  int64_t rows = 0;  // of a tile
  int64_t probabilities_offset = 0, gradients_offset = 0, narrow_gradients_offset = 0;
  int64_t keys_offset = 0, values_offset = 0, library_offset = 0, bytes = 0;
};
inline constexpr int64_t kScoresMultiple = 8;  // of elements between rows of scores
template <typename Op>
AttentionLayout attention_layout(const Op& op, DType interior, bool backward) {
  constexpr int64_t kScoresOfTile = int64_t{1} << 25;
  const int64_t most = kScoresOfTile / (op.length * op.kv_heads) / 16 * 16;
  AttentionLayout layout = {.rows = std::min(op.length, std::clamp<int64_t>(most, 16, 512))};
  const int64_t scores = layout.rows * round_up(op.length, kScoresMultiple) * op.kv_heads;
  const int64_t wide = aligned_bytes(scores * 4);
  const int64_t narrow = interior == DType::kF32 ? 0 : aligned_bytes(scores * 2);
  const int64_t sums = aligned_bytes(op.length * op.kv_heads * op.head_size * 4);
  layout.probabilities_offset = narrow > 0 ? wide : 0;  // f32: over the scores
  layout.gradients_offset = wide + narrow;
  const int64_t gradients_end = layout.gradients_offset + (backward ? wide : 0);
  layout.narrow_gradients_offset = narrow > 0 ? gradients_end : layout.gradients_offset;
  layout.keys_offset = gradients_end + (backward ? narrow : 0);
  layout.values_offset = layout.keys_offset + (backward ? sums : 0);
  layout.library_offset = layout.values_offset + (backward ? sums : 0);
  layout.bytes = layout.library_offset + kLibraryBytes;
  return layout;
}

// Whether cuDNN may take the call (device/fused_attention.h).
template <typename Op>
bool may_be_fused(const Op& op, DType interior) {
  return interior != DType::kF32 && op.head_size % 8 == 0 && op.head_size <= 256 &&
         op.cap == 0.0f && op.starts == nullptr;
}

// cuDNN's deterministic backward stores a matrix of scores in 16 bits, and dq and a sum for each
// row in f32 (seen of 9.19 on an H100). So a call is cut into parts with that many sequences and
// key heads, whose matrices fit kPart, or of one key head that fits kLargestPart. Beyond that,
// cuDNN is not asked.
struct FusedParts {
  int64_t batch = 0, kv_heads = 0, bytes = 0;
};
inline FusedParts fused_parts(const AttentionBackward& op, DType interior) {
  constexpr int64_t kPart = int64_t{5} << 28, kLargestPart = int64_t{1} << 32, kTile = 128;
  if (!may_be_fused(op, interior)) return {};
  const int64_t length = round_up(op.length, kTile);
  const int64_t row = 2 * length + 4 * round_up(op.head_size, 64) + 4;
  const int64_t group = op.heads / op.kv_heads * length * row;  // of one key head
  if (group > kLargestPart) return {};
  const int64_t most = std::max<int64_t>(1, kPart / group);
  int64_t kv_heads = std::min(op.kv_heads, most);
  int64_t batch = std::clamp<int64_t>(most / op.kv_heads, 1, op.batch);
  // cuDNN counts on 16 bytes also where the log of sums of a part begins.
  const auto is_aligned = [&](int64_t heads) { return heads * op.length % 4 == 0; };
  while (kv_heads < op.kv_heads && !is_aligned(kv_heads * (op.heads / op.kv_heads))) --kv_heads;
  while (batch < op.batch && !is_aligned(batch * op.heads)) --batch;
  if (kv_heads == 0 || batch == 0) return {};
  return {batch, kv_heads, aligned_bytes(batch * kv_heads * group) + kWorkspaceAlignment};
}
inline int64_t bytes_needed(const AttentionForward& op, DType interior) {
  return attention_layout(op, interior, false).bytes;
}
inline int64_t bytes_needed(const AttentionBackward& op, DType interior) {
  return std::max(attention_layout(op, interior, true).bytes, fused_parts(op, interior).bytes);
}

// Attention over a cache by parts of the positions that a query sees: what each part leaves, for as
// many heads of tokens at a time as fit kPartsBytes.
inline constexpr int kPartPositions = 128;
struct CachedParts {
  int64_t parts = 0;   // of a head of a token, at most
  int64_t floats = 0;  // of a part
  int64_t items = 0;   // heads of tokens
  int64_t bytes = 0;
};
inline CachedParts cached_parts(const CachedAttention& op) {
  constexpr int64_t kPartsBytes = int64_t{32} << 20, kSums = 4;
  const int64_t seen = op.window > 0 ? std::min(op.window, op.positions) : op.positions;
  CachedParts parts = {.parts = ceil_div(seen, int64_t{kPartPositions}),
                       .floats = kSums + round_up(op.head_size, kSums)};
  const int64_t item_bytes = parts.parts * parts.floats * 4;
  const int64_t most = std::max<int64_t>(kPartsBytes / item_bytes, 1);
  parts.items = std::min(op.tokens * op.heads, most);
  parts.bytes = parts.items * item_bytes;
  return parts;
}
inline int64_t bytes_needed(const CachedAttention& op, DType) {
  return cached_parts(op).bytes;
}

}  // namespace strata::kernels::cuda
