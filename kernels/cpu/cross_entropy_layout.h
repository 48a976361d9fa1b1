// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/base/units.h"
#include "kernels/cross_entropy.h"
#include "kernels/matmul.h"

namespace strata::kernels::cpu {

constexpr int64_t kLogitsOfChunk = int64_t{8} << 20;

// The layout of a call's workspace, which begins with the logits of a chunk of rows.
struct CrossEntropyLayout {
  int64_t rows;  // of a chunk
  int64_t losses_offset;
  int64_t product_offset;
};

inline CrossEntropyLayout layout_of(const LinearCrossEntropy& op) {
  const int64_t rows = std::min(op.rows, cross_entropy_chunk_rows(op.vocabulary));
  const int64_t losses = round_up(rows * op.vocabulary * 4, 64);
  return {rows, losses, losses + round_up(rows * 8, 64)};
}

inline MatMulForward logits_product(const LinearCrossEntropy& op, int64_t rows) {
  return {.dtype = op.dtype, .rows = rows, .outputs = op.vocabulary, .inputs = op.cols, .w = op.w};
}

}  // namespace strata::kernels::cpu
