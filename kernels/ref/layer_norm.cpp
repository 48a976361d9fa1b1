// SPDX-License-Identifier: Apache-2.0
#include "kernels/layer_norm.h"

#include <cmath>

#include "kernels/ref/ops.h"
#include "kernels/typed.h"

namespace strata::kernels::ref {

void layer_norm_forward(const LayerNormForward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0 && is_weight_type(op.dtype));
  const auto cols = static_cast<double>(op.cols);
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t begin = row * op.cols;
    double mean = 0.0;
    for (int64_t col = 0; col < op.cols; ++col) mean += load(op.dtype, op.x, begin + col);
    mean /= cols;
    double squares = 0.0;
    for (int64_t col = 0; col < op.cols; ++col) {
      const double distance = load(op.dtype, op.x, begin + col) - mean;
      squares += distance * distance;
    }
    const double rstd = 1.0 / std::sqrt(squares / cols + op.eps);
    for (int64_t col = 0; col < op.cols; ++col) {
      const double n = (load(op.dtype, op.x, begin + col) - mean) * rstd;
      const double y = n * load(op.dtype, op.w, col) + load(op.dtype, op.b, col);
      store(op.y, begin + col, static_cast<float>(y));
    }
    if (op.mean) op.mean[row] = static_cast<float>(mean);
    if (op.rstd) op.rstd[row] = static_cast<float>(rstd);
  }
}

void layer_norm_backward(const LayerNormBackward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0 && is_weight_type(op.dtype));
  const auto normed = [&](int64_t row, int64_t col) {
    return (double{load(op.dtype, op.x, row * op.cols + col)} - op.mean[row]) * op.rstd[row];
  };
  for (int64_t col = 0; col < op.cols; ++col) {
    double of_w = 0.0, of_b = 0.0;
    for (int64_t row = 0; row < op.rows; ++row) {
      const double dy = load(op.dy, row * op.cols + col);
      of_w += dy * normed(row, col);
      of_b += dy;
    }
    if (op.dw) op.dw[col] = static_cast<float>(op.accumulate ? op.dw[col] + of_w : of_w);
    if (op.db) op.db[col] = static_cast<float>(op.accumulate ? op.db[col] + of_b : of_b);
  }
  for (int64_t row = 0; op.dx && row < op.rows; ++row) {
    const int64_t begin = row * op.cols;
    double mean_g = 0.0, mean_gn = 0.0;
    for (int64_t col = 0; col < op.cols; ++col) {
      const double g = double{load(op.dy, begin + col)} * load(op.dtype, op.w, col);
      mean_g += g;
      mean_gn += g * normed(row, col);
    }
    mean_g /= static_cast<double>(op.cols);
    mean_gn /= static_cast<double>(op.cols);
    for (int64_t col = 0; col < op.cols; ++col) {
      const int64_t at = begin + col;
      const double g = double{load(op.dy, at)} * load(op.dtype, op.w, col);
      const double change = op.rstd[row] * (g - mean_g - normed(row, col) * mean_gn);
      const double residual = op.dres ? load(op.dtype, op.dres, at) : 0.0;
      store(op.dtype, op.dx, at, static_cast<float>(residual + change));
    }
  }
}

}  // namespace strata::kernels::ref
