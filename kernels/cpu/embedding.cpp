// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.h"

#include <cstring>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/rows.h"
#include "kernels/typed.h"

namespace strata::kernels::cpu {
namespace {

constexpr int64_t kBlockRows = 16;
constexpr int64_t kBlockCols = 128;

template <typename Op>
void check(const Op& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0 && is_float_or_bf16(op.dtype));
  for (int64_t row = 0; row < op.rows; ++row) {
    STRATA_CHECK(op.tokens[row] >= 0 && op.tokens[row] < op.vocabulary);
  }
}

}  // namespace

void embedding_forward(const EmbeddingForward& op) {
  check(op);
  const int64_t row_bytes = op.cols * bytes_of(op.dtype);
  parallel_blocks(op.rows, kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::memcpy(static_cast<char*>(op.out) + row * row_bytes,
                  static_cast<const char*>(op.w) + op.tokens[row] * row_bytes,
                  static_cast<size_t>(row_bytes));
    }
  });
}

void embedding_backward(const EmbeddingBackward& op) {
  check(op);
  if (!op.accumulate) fill({.count = op.vocabulary * op.cols, .value = 0.0f, .y = op.dw});
  parallel_blocks(op.cols, kBlockCols, [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < op.rows; ++row) {
      float* dw = op.dw + op.tokens[row] * op.cols + begin;
      const int64_t at = row * op.cols + begin;
      if (op.dtype == DType::kF32) {
        add_to(static_cast<const float*>(op.dy) + at, dw, end - begin);
      } else {
        add_widened_to(static_cast<const uint16_t*>(op.dy) + at, dw, end - begin);
      }
    }
  });
}

}  // namespace strata::kernels::cpu
