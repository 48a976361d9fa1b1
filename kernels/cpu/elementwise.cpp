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

template <typename X, typename A, typename Y>
void add_range(const X* x, const A* a, Y* y, int64_t count) {
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

template <typename T>
void widen_range(const T* x, float* y, int64_t count) {
  for_vectors(count, [&](auto d, int64_t i, auto tail)
                         HWY_ATTR { store_as(d, load_as(d, x + i, tail), y + i, tail); });
}

void add_widened(DType type, const void* x, float* y, int64_t count) {
  with_weight_type(type,
                   [&](auto t) { add_range(y, static_cast<const decltype(t)*>(x), y, count); });
}
void add_rounded(DType type, const void* x, void* y, int64_t count) {
  with_weight_type(type, [&](auto t) {
    auto* to = static_cast<decltype(t)*>(y);
    add_range(to, static_cast<const decltype(t)*>(x), to, count);
  });
}
void add_residual_of(DType type, const void* x, const float* a, void* y, int64_t count) {
  with_weight_type(type, [&](auto t) {
    add_range(static_cast<const decltype(t)*>(x), a, static_cast<decltype(t)*>(y), count);
  });
}
void add_scaled(DType type, const void* x, float factor, float* y, int64_t count) {
  with_weight_type(type, [&](auto t) {
    add_scaled_range(static_cast<const decltype(t)*>(x), factor, y, count);
  });
}
void scale(DType type, const void* x, float factor, void* y, int64_t count) {
  with_weight_type(type, [&](auto t) {
    scale_range(static_cast<const decltype(t)*>(x), factor, static_cast<decltype(t)*>(y), count);
  });
}
void widen_of(DType type, const void* x, float* y, int64_t count) {
  with_weight_type(type,
                   [&](auto t) { widen_range(static_cast<const decltype(t)*>(x), y, count); });
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels::cpu {
namespace {

HWY_EXPORT(add_widened);
HWY_EXPORT(add_rounded);
HWY_EXPORT(add_residual_of);
HWY_EXPORT(add_scaled);
HWY_EXPORT(scale);
HWY_EXPORT(widen_of);
HWY_EXPORT(soft_cap_range);

constexpr int64_t kBlock = 32768;

}  // namespace

void widen(DType type, const void* from, float* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(widen_of)(type, from, to, count);
}

void add_to(const float* x, float* y, int64_t count) {
  add_widened_to(DType::kF32, x, y, count);
}

void add_widened_to(DType type, const void* x, float* y, int64_t count) {
  HWY_DYNAMIC_DISPATCH(add_widened)(type, x, y, count);
}

void add_rounded_to(DType type, const void* x, void* y, int64_t count) {
  HWY_DYNAMIC_DISPATCH(add_rounded)(type, x, y, count);
}

void add_scaled_to(DType type, const void* x, float factor, float* y, int64_t count) {
  HWY_DYNAMIC_DISPATCH(add_scaled)(type, x, factor, y, count);
}

void scale_to(DType type, const void* x, float factor, void* y, int64_t count) {
  HWY_DYNAMIC_DISPATCH(scale)(type, x, factor, y, count);
}

void add_residual(const AddResidual& op) {
  parallel_blocks(op.count, kBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(add_residual_of)
    (op.dtype, element_of(op.dtype, op.x, begin), op.a + begin, element_of(op.dtype, op.y, begin),
     end - begin);
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
  parallel_blocks(op.count, kBlock, [&](int64_t begin, int64_t end) {
    widen(op.dtype, element_of(op.dtype, op.x, begin), op.y + begin, end - begin);
  });
}

}  // namespace strata::kernels::cpu
#endif  // HWY_ONCE
