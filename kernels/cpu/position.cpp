// SPDX-License-Identifier: Apache-2.0
#include "kernels/position.h"

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/rows.h"
#include "kernels/typed.h"

namespace strata::kernels::cpu {
namespace {

constexpr int64_t kBlockRows = 16;
constexpr int64_t kBlockCols = 128;

}  // namespace

void position_forward(const PositionForward& op) {
  STRATA_CHECK(has_positions(op.rows, op.length, op.positions) && is_weight_type(op.dtype));
  parallel_blocks(op.rows, kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t position = op.positions ? op.positions[row] : position_of(op, row);
      add_rounded_to(op.dtype, element_of(op.dtype, op.p, position * op.cols),
                     element_of(op.dtype, op.y, row * op.cols), op.cols);
    }
  });
}

void position_backward(const PositionBackward& op) {
  STRATA_CHECK(op.length > 0 && op.rows % op.length == 0 &&
               op.length * op.context.ranks <= op.positions);
  if (!op.accumulate) fill({.count = op.positions * op.cols, .value = 0.0f, .y = op.dp});
  parallel_blocks(op.cols, kBlockCols, [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < op.rows; ++row) {
      float* dp = op.dp + position_of(op, row) * op.cols + begin;
      add_widened_to(op.dtype, element_of(op.dtype, op.dy, row * op.cols + begin), dp, end - begin);
    }
  });
}

}  // namespace strata::kernels::cpu
