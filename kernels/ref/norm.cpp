// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm.h"

#include <cmath>

#include "kernels/ref/ops.h"
#include "kernels/typed.h"

namespace strata::kernels::ref {

void rms_norm_forward(const RmsNormForward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0 && is_float_or_bf16(op.dtype));
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t begin = row * op.cols;
    double squares = 0.0;
    for (int64_t col = 0; col < op.cols; ++col) {
      const double x = load(op.dtype, op.x, begin + col);
      squares += x * x;
    }
    const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(op.cols) + op.eps);
    for (int64_t col = 0; col < op.cols; ++col) {
      op.y[begin + col] =
          static_cast<float>(load(op.dtype, op.x, begin + col) * rstd * load(op.dtype, op.w, col));
    }
    if (op.rstd) op.rstd[row] = static_cast<float>(rstd);
  }
}

void rms_norm_backward(const RmsNormBackward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0 && is_float_or_bf16(op.dtype) &&
               is_float_or_bf16(op.gradient_dtype));
  // Before dx, which may lie over dy.
  for (int64_t col = 0; op.dw && col < op.cols; ++col) {
    double sum = 0.0;
    for (int64_t row = 0; row < op.rows; ++row) {
      const int64_t at = row * op.cols + col;
      sum += double{op.dy[at]} * load(op.dtype, op.x, at) * op.rstd[row];
    }
    op.dw[col] = static_cast<float>(op.accumulate ? op.dw[col] + sum : sum);
  }
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t begin = row * op.cols;
    const double rstd = op.rstd[row];
    double mean = 0.0;
    for (int64_t col = 0; col < op.cols; ++col) {
      mean += double{op.dy[begin + col]} * load(op.dtype, op.w, col) *
              load(op.dtype, op.x, begin + col) * rstd;
    }
    mean /= static_cast<double>(op.cols);
    for (int64_t col = 0; col < op.cols; ++col) {
      const int64_t at = begin + col;
      const double g = double{op.dy[at]} * load(op.dtype, op.w, col);
      const double n = load(op.dtype, op.x, at) * rstd;
      const double residual = op.dres ? load(op.gradient_dtype, op.dres, at) : 0.0;
      store(op.gradient_dtype, op.dx, at, static_cast<float>(residual + rstd * (g - n * mean)));
    }
  }
}

}  // namespace strata::kernels::ref
