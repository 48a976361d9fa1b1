// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm.h"

#include <cmath>

#include "kernels/ref/ops.h"
#include "kernels/typed.h"

namespace strata::kernels::ref {
namespace {

// Index of the first element of a group of a row.
struct Places {
  int64_t groups, cols, stride;
  int64_t operator()(int64_t row, int64_t group) const { return row * stride + group * cols; }
};

template <typename Op>
Places places(const Op& op, int64_t stride) {
  return {op.groups, op.cols, stride_or(stride, op.groups * op.cols)};
}

// The factor of a column: offset + w.
template <typename Op>
double factor(const Op& op, int64_t col) {
  return double{op.offset} + load(op.dtype, op.w, col);
}

void weight_gradient(const RmsNormBackward& op) {
  const Places x_at = places(op, op.x_stride), dy_at = places(op, op.dy_stride);
  for (int64_t col = 0; col < op.cols; ++col) {
    double sum = 0.0;
    for (int64_t row = 0; row < op.rows; ++row) {
      for (int64_t group = 0; group < op.groups; ++group) {
        sum += double{load(op.dy, dy_at(row, group) + col)} *
               load(x_dtype_of(op), op.x, x_at(row, group) + col) *
               op.rstd[row * op.groups + group];
      }
    }
    op.dw[col] = static_cast<float>(op.accumulate ? op.dw[col] + sum : sum);
  }
}

// The sum over a row's columns of g * n.
double row_sum(const RmsNormBackward& op, int64_t row, int64_t group) {
  const int64_t x_at = places(op, op.x_stride)(row, group);
  const ConstInterior dy = op.dy + places(op, op.dy_stride)(row, group);
  const double rstd = op.rstd[row * op.groups + group];
  double sum = 0.0;
  for (int64_t col = 0; col < op.cols; ++col) {
    sum += double{load(dy, col)} * factor(op, col) * load(x_dtype_of(op), op.x, x_at + col) * rstd;
  }
  return sum;
}

void input_gradient(const RmsNormBackward& op, int64_t row, int64_t group) {
  const int64_t x_at = places(op, op.x_stride)(row, group);
  const int64_t dx_at = places(op, op.dx_stride)(row, group);
  const ConstInterior dy = op.dy + places(op, op.dy_stride)(row, group);
  const DType x_dtype = x_dtype_of(op);
  const double rstd = op.rstd[row * op.groups + group];
  const double sum = op.all_sums ? double{op.all_sums[row]} : row_sum(op, row, group);
  const double mean = sum / static_cast<double>(mean_cols(op));
  for (int64_t col = 0; col < op.cols; ++col) {
    const double g = double{load(dy, col)} * factor(op, col);
    const double n = load(x_dtype, op.x, x_at + col) * rstd;
    const double residual = op.dres ? load(x_dtype, op.dres, dx_at + col) : 0.0;
    const float dx = static_cast<float>(residual + rstd * (g - n * mean));
    if (op.inside) {
      store(Interior{op.dx, x_dtype}, dx_at + col, dx);
    } else {
      store(x_dtype, op.dx, dx_at + col, dx);
    }
  }
}

}  // namespace

void rms_norm_forward(const RmsNormForward& op) {
  STRATA_CHECK(is_rms_norm(op));
  const DType x_dtype = x_dtype_of(op);
  for (int64_t row = 0; row < op.rows; ++row) {
    for (int64_t group = 0; group < op.groups; ++group) {
      const int64_t x_at = places(op, op.x_stride)(row, group);
      const Interior y = op.y + places(op, op.y_stride)(row, group);
      double squares = 0.0;
      for (int64_t col = 0; col < op.cols; ++col) {
        const double x = load(x_dtype, op.x, x_at + col);
        squares += x * x;
      }
      if (op.own_sums) {
        op.own_sums[row] = static_cast<float>(squares);
        continue;
      }
      if (op.all_sums) squares = op.all_sums[row];
      const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(mean_cols(op)) + op.eps);
      for (int64_t col = 0; col < op.cols; ++col) {
        const double normed = load(x_dtype, op.x, x_at + col) * rstd;
        store(y, col, static_cast<float>(normed * factor(op, col)));
      }
      if (op.rstd) op.rstd[row * op.groups + group] = static_cast<float>(rstd);
    }
  }
}

void rms_norm_backward(const RmsNormBackward& op) {
  STRATA_CHECK(is_rms_norm(op));
  if (op.own_sums) {
    for (int64_t row = 0; row < op.rows; ++row) {
      op.own_sums[row] = static_cast<float>(row_sum(op, row, 0));
    }
    return;
  }
  if (op.dw) weight_gradient(op);  // before dx, which may overwrite dy
  for (int64_t row = 0; op.dx && row < op.rows; ++row) {
    for (int64_t group = 0; group < op.groups; ++group) input_gradient(op, row, group);
  }
}

}  // namespace strata::kernels::ref
