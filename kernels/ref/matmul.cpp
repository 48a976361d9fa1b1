// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"

#include "kernels/ref/ops.h"
#include "kernels/typed.h"

namespace strata::kernels::ref {
namespace {

void put(Interior to, int64_t index, double sum, bool accumulate) {
  store(to, index, static_cast<float>(accumulate ? load(to, index) + sum : sum));
}

}  // namespace

void matmul_forward(const MatMulForward& op) {
  STRATA_CHECK(op.rows > 0 && op.outputs > 0 && op.inputs > 0 && is_weight_type(op.dtype));
  const int64_t x_stride = stride_or(op.x_stride, op.inputs);
  const int64_t y_stride = stride_or(op.y_stride, op.outputs);
  for (int64_t row = 0; row < op.rows; ++row) {
    for (int64_t out = 0; out < op.outputs; ++out) {
      double sum = op.bias ? load(op.dtype, op.bias, out) : 0.0;
      for (int64_t in = 0; in < op.inputs; ++in) {
        sum += double{load(op.x, row * x_stride + in)} * load(op.dtype, op.w, out * op.inputs + in);
      }
      put(op.y, row * y_stride + out, sum, op.accumulate);
    }
  }
}

void matmul_input(const MatMulInput& op) {
  STRATA_CHECK(op.rows > 0 && op.outputs > 0 && op.inputs > 0 && is_weight_type(op.dtype));
  const int64_t dy_stride = stride_or(op.dy_stride, op.outputs);
  const int64_t dx_stride = stride_or(op.dx_stride, op.inputs);
  for (int64_t row = 0; row < op.rows; ++row) {
    for (int64_t in = 0; in < op.inputs; ++in) {
      double sum = 0.0;
      for (int64_t out = 0; out < op.outputs; ++out) {
        sum +=
            double{load(op.dy, row * dy_stride + out)} * load(op.dtype, op.w, out * op.inputs + in);
      }
      put(op.dx, row * dx_stride + in, sum, op.accumulate);
    }
  }
}

void matmul_weight(const MatMulWeight& op) {
  STRATA_CHECK(op.rows > 0 && op.outputs > 0 && op.inputs > 0);
  const int64_t dy_stride = stride_or(op.dy_stride, op.outputs);
  const int64_t x_stride = stride_or(op.x_stride, op.inputs);
  for (int64_t out = 0; out < op.outputs; ++out) {
    for (int64_t in = 0; in < op.inputs; ++in) {
      double sum = 0.0;
      for (int64_t row = 0; row < op.rows; ++row) {
        sum += double{load(op.dy, row * dy_stride + out)} * load(op.x, row * x_stride + in);
      }
      put(op.dw, out * op.inputs + in, sum, op.accumulate);
    }
    if (!op.dbias) continue;
    double sum = 0.0;
    for (int64_t row = 0; row < op.rows; ++row) sum += load(op.dy, row * dy_stride + out);
    put(op.dbias, out, sum, op.accumulate);
  }
}

}  // namespace strata::kernels::ref
