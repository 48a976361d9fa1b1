// SPDX-License-Identifier: Apache-2.0
#include "kernels/swiglu.h"

#include <cmath>

#include "kernels/ref/ops.h"
#include "kernels/typed.h"

namespace strata::kernels::ref {
namespace {

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

}  // namespace

void swiglu_forward(const SwigluForward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0);
  const int64_t stride = stride_or(op.stride, op.cols);
  for (int64_t row = 0; row < op.rows; ++row) {
    for (int64_t col = 0; col < op.cols; ++col) {
      const double g = op.g[row * stride + col];
      op.h[row * op.cols + col] = static_cast<float>(g * sigmoid(g) * op.u[row * stride + col]);
    }
  }
}

void swiglu_backward(const SwigluBackward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0);
  const int64_t stride = stride_or(op.stride, op.cols);
  const int64_t d_stride = stride_or(op.d_stride, op.cols);
  for (int64_t row = 0; row < op.rows; ++row) {
    for (int64_t col = 0; col < op.cols; ++col) {
      const double g = op.g[row * stride + col];
      const double u = op.u[row * stride + col];
      const double dh = op.dh[row * op.cols + col];
      const double s = sigmoid(g);
      op.dg[row * d_stride + col] = static_cast<float>(dh * u * s * (1.0 + g * (1.0 - s)));
      op.du[row * d_stride + col] = static_cast<float>(dh * g * s);
    }
  }
}

}  // namespace strata::kernels::ref
