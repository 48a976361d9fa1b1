// SPDX-License-Identifier: Apache-2.0
#include "kernels/position.h"

#include <algorithm>

#include "kernels/ref/ops.h"
#include "kernels/typed.h"

namespace strata::kernels::ref {

void position_forward(const PositionForward& op) {
  STRATA_CHECK(has_positions(op.rows, op.length, op.positions) && is_weight_type(op.dtype));
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t position = op.positions ? op.positions[row] : position_of(op, row);
    for (int64_t col = 0; col < op.cols; ++col) {
      const int64_t at = row * op.cols + col;
      const float p = load(op.dtype, op.p, position * op.cols + col);
      store(op.dtype, op.y, at, load(op.dtype, op.y, at) + p);
    }
  }
}

void position_backward(const PositionBackward& op) {
  STRATA_CHECK(op.length > 0 && op.rows % op.length == 0 &&
               op.length * op.context.ranks <= op.positions);
  if (!op.accumulate) std::fill_n(op.dp, op.positions * op.cols, 0.0f);
  for (int64_t row = 0; row < op.rows; ++row) {
    float* dp = op.dp + position_of(op, row) * op.cols;
    for (int64_t col = 0; col < op.cols; ++col) {
      dp[col] += load(op.dtype, op.dy, row * op.cols + col);
    }
  }
}

}  // namespace strata::kernels::ref
