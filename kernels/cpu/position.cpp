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
  STRATA_CHECK(has_positions(op.rows, op.length, op.positions) && is_float_or_bf16(op.dtype));
  parallel_blocks(op.rows, kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t position = op.positions ? op.positions[row] : position_of(op, row);
      const int64_t from = position * op.cols;
      const int64_t to = row * op.cols;
      if (op.dtype == DType::kF32) {
        add_to(static_cast<const float*>(op.p) + from, static_cast<float*>(op.y) + to, op.cols);
      } else {
        const auto* p = static_cast<const uint16_t*>(op.p) + from;
        auto* y = static_cast<uint16_t*>(op.y) + to;
        for (int64_t i = 0; i < op.cols; ++i) y[i] = to_bf16(from_bf16(y[i]) + from_bf16(p[i]));
      }
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
      const int64_t at = row * op.cols + begin;
      if (op.dtype == DType::kF32) {
        add_to(static_cast<const float*>(op.dy) + at, dp, end - begin);
      } else {
        add_widened_to(static_cast<const uint16_t*>(op.dy) + at, dp, end - begin);
      }
    }
  });
}

}  // namespace strata::kernels::cpu
