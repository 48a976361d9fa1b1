// SPDX-License-Identifier: Apache-2.0
#include "kernels/glu.h"

#include <cmath>

#include "kernels/ref/ops.h"
#include "kernels/typed.h"

namespace strata::kernels::ref {
namespace {

// a(x) = x * s and a'(x).
struct Activated {
  double value, slope;
};

Activated activate(Activation activation, double x) {
  double t = x, dt = 1.0;
  switch (activation) {
    case Activation::kSilu:
      break;
    case Activation::kGeluTanh:
      t = kGeluSlope * (x + kGeluCubic * x * x * x);
      dt = kGeluSlope * (1.0 + 3.0 * kGeluCubic * x * x);
      break;
  }
  const double s = 1.0 / (1.0 + std::exp(-t));
  const double rest = 1.0 / (1.0 + std::exp(t));  // 1 - s
  return {x * s, s + x * s * rest * dt};
}

}  // namespace

void glu_forward(const GluForward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0);
  const int64_t stride = stride_or(op.stride, op.cols);
  for (int64_t row = 0; row < op.rows; ++row) {
    for (int64_t col = 0; col < op.cols; ++col) {
      const double a = activate(op.activation, load(op.g, row * stride + col)).value;
      const double u = op.u ? load(op.u, row * stride + col) : 1.0;
      store(op.h, row * op.cols + col, static_cast<float>(a * u));
    }
  }
}

void glu_backward(const GluBackward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0 && (op.u == nullptr) == (op.du == nullptr));
  const int64_t stride = stride_or(op.stride, op.cols);
  const int64_t d_stride = stride_or(op.d_stride, op.cols);
  for (int64_t row = 0; row < op.rows; ++row) {
    for (int64_t col = 0; col < op.cols; ++col) {
      const Activated a = activate(op.activation, load(op.g, row * stride + col));
      const double u = op.u ? load(op.u, row * stride + col) : 1.0;
      const double dh = load(op.dh, row * op.cols + col);
      store(op.dg, row * d_stride + col, static_cast<float>(dh * u * a.slope));
      if (op.du) store(op.du, row * d_stride + col, static_cast<float>(dh * a.value));
    }
  }
}

}  // namespace strata::kernels::ref
