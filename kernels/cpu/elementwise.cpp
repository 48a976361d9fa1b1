// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.h"

#include <algorithm>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/rows.h"
#include "kernels/typed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cpp"
#include "kernels/cpu/simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/cpu/simd_typed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

template <typename X, typename Y>
void add_residual_range(const X* x, const float* a, Y* y, int64_t count) {
  for_vectors(count, [&](auto d, int64_t i, auto tail) HWY_ATTR {
    store_as(d, hn::Add(load_as(d, x + i, tail), load_as(d, a + i, tail)), y + i, tail);
  });
}

void soft_cap_range(float* y, int64_t count, float cap) {
  for_vectors(count, [&](auto d, int64_t i, auto tail) HWY_ATTR {
    const VF32 part = hn::Tanh(d, hn::Mul(load_as(d, y + i, tail), hn::Set(d, 1.0f / cap)));
    store_as(d, hn::Mul(part, hn::Set(d, cap)), y + i, tail);
  });
}

// y += factor * x, in two roundings.
template <typename X>
void add_scaled_range(const X* x, float factor, float* y, int64_t count) {
  for_vectors(count, [&](auto d, int64_t i, auto tail) HWY_ATTR {
    const VF32 scaled = hn::Mul(load_as(d, x + i, tail), hn::Set(d, factor));
    store_as(d, hn::Add(load_as(d, y + i, tail), scaled), y + i, tail);
  });
}

template <typename T>
void scale_range(const T* x, float factor, T* y, int64_t count) {
  for_vectors(count, [&](auto d, int64_t i, auto tail) HWY_ATTR {
    store_as(d, hn::Mul(load_as(d, x + i, tail), hn::Set(d, factor)), y + i, tail);
  });
}

void widen_range(const uint16_t* x, float* y, int64_t count) {
  for_vectors(count, [&](auto d, int64_t i, auto tail)
                         HWY_ATTR { store_as(d, load_as(d, x + i, tail), y + i, tail); });
}
void residual_f32(const float* x, const float* a, float* y, int64_t count) {
  add_residual_range(x, a, y, count);
}
void residual_bf16(const uint16_t* x, const float* a, uint16_t* y, int64_t count) {
  add_residual_range(x, a, y, count);
}

void add_widened(const uint16_t* x, float* y, int64_t count) {
  add_residual_range(x, y, y, count);
}
void add_scaled_f32(const float* x, float factor, float* y, int64_t count) {
  add_scaled_range(x, factor, y, count);
}
void add_scaled_bf16(const uint16_t* x, float factor, float* y, int64_t count) {
  add_scaled_range(x, factor, y, count);
}
void scale_f32(const float* x, float factor, float* y, int64_t count) {
  scale_range(x, factor, y, count);
}
void scale_bf16(const uint16_t* x, float factor, uint16_t* y, int64_t count) {
  scale_range(x, factor, y, count);
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels::cpu {
namespace {

HWY_EXPORT(widen_range);
HWY_EXPORT(residual_f32);
HWY_EXPORT(residual_bf16);
HWY_EXPORT(add_widened);
HWY_EXPORT(add_scaled_f32);
HWY_EXPORT(add_scaled_bf16);
HWY_EXPORT(scale_f32);
HWY_EXPORT(scale_bf16);
HWY_EXPORT(soft_cap_range);

constexpr int64_t kBlock = 32768;

}  // namespace

void widen(const uint16_t* from, float* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(widen_range)(from, to, count);
}

void add_to(const float* x, float* y, int64_t count) {
  HWY_DYNAMIC_DISPATCH(residual_f32)(y, x, y, count);
}

void add_widened_to(const uint16_t* x, float* y, int64_t count) {
  HWY_DYNAMIC_DISPATCH(add_widened)(x, y, count);
}

void add_scaled_to(const float* x, float factor, float* y, int64_t count) {
  HWY_DYNAMIC_DISPATCH(add_scaled_f32)(x, factor, y, count);
}

void add_scaled_to(const uint16_t* x, float factor, float* y, int64_t count) {
  HWY_DYNAMIC_DISPATCH(add_scaled_bf16)(x, factor, y, count);
}

void scale_to(const float* x, float factor, float* y, int64_t count) {
  HWY_DYNAMIC_DISPATCH(scale_f32)(x, factor, y, count);
}

void scale_to(const uint16_t* x, float factor, uint16_t* y, int64_t count) {
  HWY_DYNAMIC_DISPATCH(scale_bf16)(x, factor, y, count);
}

void add_residual(const AddResidual& op) {
  STRATA_CHECK(is_float_or_bf16(op.dtype));
  parallel_blocks(op.count, kBlock, [&](int64_t begin, int64_t end) {
    if (op.dtype == DType::kF32) {
      HWY_DYNAMIC_DISPATCH(residual_f32)
      (static_cast<const float*>(op.x) + begin, op.a + begin, static_cast<float*>(op.y) + begin,
       end - begin);
    } else {
      HWY_DYNAMIC_DISPATCH(residual_bf16)
      (static_cast<const uint16_t*>(op.x) + begin, op.a + begin,
       static_cast<uint16_t*>(op.y) + begin, end - begin);
    }
  });
}

void add(const Add& op) {
  parallel_blocks(op.count, kBlock, [&](int64_t begin, int64_t end) {
    add_to(op.a + begin, op.y + begin, end - begin);
  });
}

void fill(const Fill& op) {
  parallel_blocks(op.count, kBlock, [&](int64_t begin, int64_t end) {
    std::fill_n(static_cast<float*>(op.y + begin), end - begin, op.value);
  });
}

void soft_cap(const SoftCap& op) {
  STRATA_CHECK(op.cap > 0.0f);
  parallel_blocks(op.count, kBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(soft_cap_range)(op.y + begin, end - begin, op.cap);
  });
}

void cast(const Cast& op) {
  STRATA_CHECK(is_float_or_bf16(op.dtype));
  parallel_blocks(op.count, kBlock, [&](int64_t begin, int64_t end) {
    float* y = op.y + begin;
    if (op.dtype == DType::kF32) {
      std::copy_n(static_cast<const float*>(op.x) + begin, end - begin, y);
    } else {
      widen(static_cast<const uint16_t*>(op.x) + begin, y, end - begin);
    }
  });
}

}  // namespace strata::kernels::cpu
#endif  // HWY_ONCE
