// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.h"

#include <algorithm>

#include "kernels/ref/ops.h"
#include "kernels/typed.h"

namespace strata::kernels::ref {
namespace {

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
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t own = own_row(op, op.tokens[row]);
    for (int64_t col = 0; col < op.cols; ++col) {
      const float w = own < 0 ? 0.0f : load(op.dtype, op.w, own * op.cols + col);
      store(op.dtype, op.out, row * op.cols + col, op.scale * w);
    }
  }
}

void embedding_backward(const EmbeddingBackward& op) {
  check(op);
  if (!op.accumulate) std::fill_n(op.dw, op.vocabulary * op.cols, 0.0f);
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t own = own_row(op, op.tokens[row]);
    if (op.tokens[row] == op.ignored || own < 0) continue;
    float* dw = op.dw + own * op.cols;
    for (int64_t col = 0; col < op.cols; ++col) {
      dw[col] += op.scale * load(op.dtype, op.dy, row * op.cols + col);
    }
  }
}

}  // namespace strata::kernels::ref
