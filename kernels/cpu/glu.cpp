// SPDX-License-Identifier: Apache-2.0
#include "kernels/glu.h"

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/typed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/glu.cpp"
#include "kernels/cpu/simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

template <Activation kActivation>
void forward_row_of(const float* g, const float* u, float* h, int64_t cols) {
  for_vectors(cols, [&](auto d, int64_t i, auto end) HWY_ATTR {
    VF32 a = activate<kActivation>(d, load_as(d, g + i, end));
    if (u) a = hn::Mul(a, load_as(d, u + i, end));
    store_as(d, a, h + i, end);
  });
}

template <Activation kActivation>
void backward_row_of(const float* g, const float* u, const float* dh, float* dg, float* du,
                     int64_t cols) {
  for_vectors(cols, [&](auto d, int64_t i, auto end) HWY_ATTR {
    const VF32 gate = load_as(d, g + i, end);
    const VF32 out = load_as(d, dh + i, end);
    const VF32 scaled = u ? hn::Mul(out, load_as(d, u + i, end)) : out;
    const ActivationParts parts = activation_parts<kActivation>(d, gate);
    const VF32 slope = activation_slope<kActivation>(d, gate, parts);
    store_as(d, hn::Mul(scaled, slope), dg + i, end);
    if (du) store_as(d, hn::Mul(out, hn::Mul(gate, parts.s)), du + i, end);
  });
}

void forward_row(Activation activation, const float* g, const float* u, float* h, int64_t cols) {
  with_activation(activation, [&](auto a) { forward_row_of<a>(g, u, h, cols); });
}

void backward_row(Activation activation, const float* g, const float* u, const float* dh, float* dg,
                  float* du, int64_t cols) {
  with_activation(activation, [&](auto a) { backward_row_of<a>(g, u, dh, dg, du, cols); });
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels::cpu {
namespace {

HWY_EXPORT(forward_row);
HWY_EXPORT(backward_row);

constexpr int64_t kBlockRows = 8;

template <typename Pointer>
Pointer row_of(Pointer first, int64_t elements) {
  return first ? first + elements : nullptr;
}

}  // namespace

void glu_forward(const GluForward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0);
  const int64_t stride = stride_or(op.stride, op.cols);
  parallel_blocks(op.rows, kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      HWY_DYNAMIC_DISPATCH(forward_row)
      (op.activation, op.g + row * stride, row_of(op.u, row * stride), op.h + row * op.cols,
       op.cols);
    }
  });
}

void glu_backward(const GluBackward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0 && (op.u == nullptr) == (op.du == nullptr));
  const int64_t stride = stride_or(op.stride, op.cols);
  const int64_t d_stride = stride_or(op.d_stride, op.cols);
  parallel_blocks(op.rows, kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      HWY_DYNAMIC_DISPATCH(backward_row)
      (op.activation, op.g + row * stride, row_of(op.u, row * stride), op.dh + row * op.cols,
       op.dg + row * d_stride, row_of(op.du, row * d_stride), op.cols);
    }
  });
}

}  // namespace strata::kernels::cpu
#endif  // HWY_ONCE
