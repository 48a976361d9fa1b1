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
  STRATA_CHECK(op.rows > 0 && op.cols > 0 && is_weight_type(op.dtype));
  for (int64_t row = 0; row < op.rows; ++row) {
    STRATA_CHECK(is_token(op, op.tokens[row]));
  }
}

}  // namespace

void embedding_forward(const EmbeddingForward& op) {
  check(op);
  const auto row_bytes = static_cast<size_t>(op.cols * bytes_of(op.dtype));
  parallel_blocks(op.rows, kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t own = own_row(op, op.tokens[row]);
      void* out = element_of(op.dtype, op.out, row * op.cols);
      if (own < 0) {
        std::memset(out, 0, row_bytes);
        continue;
      }
      const void* w = element_of(op.dtype, op.w, own * op.cols);
      if (op.scale != 1.0f) {
        scale_to(op.dtype, w, op.scale, out, op.cols);
      } else {
        std::memcpy(out, w, row_bytes);
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
      const void* dy = element_of(op.dtype, op.dy, row * op.cols + begin);
      if (op.scale != 1.0f) {
        add_scaled_to(op.dtype, dy, op.scale, dw, end - begin);
      } else {
        add_widened_to(op.dtype, dy, dw, end - begin);
      }
    }
  });
}

}  // namespace strata::kernels::cpu
