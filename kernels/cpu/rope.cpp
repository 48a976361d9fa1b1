// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/typed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cpp"
#include "kernels/cpu/simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd_typed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

void rotate_row(float* x, int64_t heads, int64_t head_size, int64_t half, const float* cos,
                const float* sin, float direction) {
  for (int64_t head = 0; head < heads; ++head) {
    float* low = x + head * head_size;
    float* high = low + half;
    for_vectors(half, [&](auto d, int64_t i, auto end) HWY_ATTR {
      const VF32 c = load_as(d, cos + i, end);
      const VF32 s = hn::Mul(load_as(d, sin + i, end), hn::Set(d, direction));
      const VF32 a = load_as(d, low + i, end);
      const VF32 b = load_as(d, high + i, end);
      store_as(d, hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), low + i, end);
      store_as(d, hn::Add(hn::Mul(b, c), hn::Mul(a, s)), high + i, end);
    });
  }
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels::cpu {
namespace {

HWY_EXPORT(rotate_row);

constexpr int64_t kBlockRows = 16;

}  // namespace

void rope(const Rope& op) {
  STRATA_CHECK(has_positions(op.rows, op.length, op.positions));
  const int64_t half = stride_or(op.rotary, op.head_size) / 2;
  STRATA_CHECK(stride_or(op.rotary, op.head_size) % 2 == 0 && 2 * half <= op.head_size);
  const int64_t row_stride = stride_or(op.row_stride, op.heads * op.head_size);
  parallel_blocks(op.rows, kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t position = op.positions ? op.positions[row] : row % op.length;
      HWY_DYNAMIC_DISPATCH(rotate_row)
      (op.x + row * row_stride, op.heads, op.head_size, half, op.cos + position * half,
       op.sin + position * half, op.inverse ? -1.0f : 1.0f);
    }
  });
}

}  // namespace strata::kernels::cpu
#endif  // HWY_ONCE
