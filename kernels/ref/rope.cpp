// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

#include "kernels/ref/ops.h"
#include "kernels/typed.h"

namespace strata::kernels::ref {

void rope(const Rope& op) {
  STRATA_CHECK(has_positions(op.rows, op.length, op.positions));
  const int64_t half = stride_or(op.rotary, op.head_size) / 2;
  STRATA_CHECK(stride_or(op.rotary, op.head_size) % 2 == 0 && 2 * half <= op.head_size);
  const int64_t row_stride = stride_or(op.row_stride, op.heads * op.head_size);
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t position = op.positions ? op.positions[row] : row % op.length;
    for (int64_t head = 0; head < op.heads; ++head) {
      const Interior x = op.x + (row * row_stride + head * op.head_size);
      for (int64_t i = 0; i < half; ++i) {
        const float c = op.cos[position * half + i];
        const float s = op.inverse ? -op.sin[position * half + i] : op.sin[position * half + i];
        const float a = load(x, i);
        const float b = load(x, i + half);
        store(x, i, a * c - b * s);
        store(x, i + half, b * c + a * s);
      }
    }
  }
}

}  // namespace strata::kernels::ref
