// SPDX-License-Identifier: Apache-2.0
#include "kernels/swiglu.h"

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/typed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/swiglu.cpp"
#include "kernels/cpu/simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/cpu/simd_typed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

// Beyond the clamp sigmoid is 0 or 1 to f32, and exp() does not overflow.
HWY_INLINE VF32 sigmoid(F32 d, VF32 x) {
  const VF32 one = hn::Set(d, 1.0f);
  const VF32 bounded = hn::Max(hn::Set(d, -87.0f), x);
  return hn::Div(one, hn::Add(one, hn::Exp(d, hn::Neg(bounded))));
}

void forward_row(const float* g, const float* u, float* h, int64_t cols) {
  for_vectors(cols, [&](auto d, int64_t i, auto end) HWY_ATTR {
    const VF32 gate = load_as(d, g + i, end);
    store_as(d, hn::Mul(hn::Mul(gate, sigmoid(d, gate)), load_as(d, u + i, end)), h + i, end);
  });
}

void backward_row(const float* g, const float* u, const float* dh, float* dg, float* du,
                  int64_t cols) {
  for_vectors(cols, [&](auto d, int64_t i, auto end) HWY_ATTR {
    const VF32 gate = load_as(d, g + i, end);
    const VF32 up = load_as(d, u + i, end);
    const VF32 out = load_as(d, dh + i, end);
    const VF32 s = sigmoid(d, gate);
    const VF32 one = hn::Set(d, 1.0f);
    const VF32 slope = hn::Mul(s, hn::MulAdd(gate, hn::Sub(one, s), one));
    store_as(d, hn::Mul(hn::Mul(out, up), slope), dg + i, end);
    store_as(d, hn::Mul(out, hn::Mul(gate, s)), du + i, end);
  });
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels::cpu {
namespace {

HWY_EXPORT(forward_row);
HWY_EXPORT(backward_row);

constexpr int64_t kBlockRows = 8;

}  // namespace

void swiglu_forward(const SwigluForward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0);
  const int64_t stride = stride_or(op.stride, op.cols);
  parallel_blocks(op.rows, kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      HWY_DYNAMIC_DISPATCH(forward_row)
      (op.g + row * stride, op.u + row * stride, op.h + row * op.cols, op.cols);
    }
  });
}

void swiglu_backward(const SwigluBackward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0);
  const int64_t stride = stride_or(op.stride, op.cols);
  const int64_t d_stride = stride_or(op.d_stride, op.cols);
  parallel_blocks(op.rows, kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      HWY_DYNAMIC_DISPATCH(backward_row)
      (op.g + row * stride, op.u + row * stride, op.dh + row * op.cols, op.dg + row * d_stride,
       op.du + row * d_stride, op.cols);
    }
  });
}

}  // namespace strata::kernels::cpu
#endif  // HWY_ONCE
