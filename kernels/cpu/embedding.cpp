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
    STRATA_CHECK(is_token(op, op.tokens[row]));
  }
}

void scale_row(const EmbeddingForward& op, int64_t own, int64_t row) {
  const int64_t from = own * op.cols;
  if (op.dtype == DType::kF32) {
    scale_to(static_cast<const float*>(op.w) + from, op.scale,
             static_cast<float*>(op.out) + row * op.cols, op.cols);
  } else {
    scale_to(static_cast<const uint16_t*>(op.w) + from, op.scale,
             static_cast<uint16_t*>(op.out) + row * op.cols, op.cols);
  }
}

void add_scaled_row(const EmbeddingBackward& op, int64_t from, int64_t count, float* dw) {
  if (op.dtype == DType::kF32) {
    add_scaled_to(static_cast<const float*>(op.dy) + from, op.scale, dw, count);
  } else {
    add_scaled_to(static_cast<const uint16_t*>(op.dy) + from, op.scale, dw, count);
  }
}

}  // namespace

void embedding_forward(const EmbeddingForward& op) {
  check(op);
  const int64_t row_bytes = op.cols * bytes_of(op.dtype);
  parallel_blocks(op.rows, kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t own = own_row(op, op.tokens[row]);
      char* out = static_cast<char*>(op.out) + row * row_bytes;
      if (own < 0) {
        std::memset(out, 0, static_cast<size_t>(row_bytes));
      } else if (op.scale != 1.0f) {
        scale_row(op, own, row);
      } else {
        std::memcpy(out, static_cast<const char*>(op.w) + own * row_bytes,
                    static_cast<size_t>(row_bytes));
      }
    }
  });
}

void embedding_backward(const EmbeddingBackward& op) {
  check(op);
  if (!op.accumulate) fill({.count = op.vocabulary * op.cols, .value = 0.0f, .y = op.dw});
  parallel_blocks(op.cols, kBlockCols, [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < op.rows; ++row) {
      const int64_t own = own_row(op, op.tokens[row]);
      if (op.tokens[row] == op.ignored || own < 0) continue;
      float* dw = op.dw + own * op.cols + begin;
      const int64_t at = row * op.cols + begin;
      if (op.scale != 1.0f) {
        add_scaled_row(op, at, end - begin, dw);
      } else if (op.dtype == DType::kF32) {
        add_to(static_cast<const float*>(op.dy) + at, dw, end - begin);
      } else {
        add_widened_to(static_cast<const uint16_t*>(op.dy) + at, dw, end - begin);
      }
    }
  });
}

}  // namespace strata::kernels::cpu
