// SPDX-License-Identifier: Apache-2.0
// Included once for each instruction set (see foreach_target.h), so the guard is Highway's.
#if defined(STRATA_SIMD_TYPED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_SIMD_TYPED_INL_H_
#undef STRATA_SIMD_TYPED_INL_H_
#else
#define STRATA_SIMD_TYPED_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/cpu/element_types.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF32 = hn::Vec<F32>;
using VU16 = hn::Vec<hn::Rebind<uint16_t, F32>>;

// The number of elements of a short last vector, 0 for a whole one; a compile-time constant in the
// loop.
struct Whole {
  static constexpr bool kTail = false;
  size_t count = 0;
};
struct Tail {
  static constexpr bool kTail = true;
  size_t count = 0;
};

// body(tag, i, Whole or Tail) over [0, count) by vectors of f32.
template <typename Body>
HWY_INLINE void for_vectors(int64_t count, const Body& body) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(d, i, Whole{});
  if (i < count) body(d, i, Tail{static_cast<size_t>(count - i)});
}

template <typename End>
HWY_INLINE VF32 load_as(F32 d, const float* from, End end) {
  if constexpr (!End::kTail) return hn::LoadU(d, from);
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)] = {};
  for (size_t i = 0; i < end.count; ++i) lanes[i] = from[i];
  return hn::Load(d, lanes);
}

template <typename End>
HWY_INLINE void store_as(F32 d, VF32 value, float* to, End end) {
  if constexpr (!End::kTail) {
    hn::StoreU(value, d, to);
    return;
  }
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(value, d, lanes);
  for (size_t i = 0; i < end.count; ++i) to[i] = lanes[i];
}

template <typename End>
HWY_INLINE VU16 load_bits(const uint16_t* from, End end) {
  const hn::Rebind<uint16_t, F32> du16;
  if constexpr (!End::kTail) return hn::LoadU(du16, from);
  HWY_ALIGN uint16_t lanes[HWY_MAX_BYTES / sizeof(uint16_t)] = {};
  for (size_t i = 0; i < end.count; ++i) lanes[i] = from[i];
  return hn::Load(du16, lanes);
}

template <typename End>
HWY_INLINE VF32 load_as(F32 d, const uint16_t* from, End end) {
  const hn::RebindToUnsigned<F32> du32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, load_bits(from, end))));
}

// canonical() of engine/base/dtype.h.
HWY_INLINE VF32 canonical(F32 d, VF32 value) {
  const VF32 nan = hn::BitCast(d, hn::Set(hn::RebindToUnsigned<F32>(), 0x7fc00000u));
  return hn::IfThenElse(hn::IsNaN(value), nan, value);
}

// The low halves of 32-bit lanes.
template <typename VU32>
HWY_INLINE VU16 low_halves(VU32 bits) {
  return hn::TruncateTo(hn::Rebind<uint16_t, F32>(), bits);
}

template <typename End>
HWY_INLINE void store_bits(VU16 value, uint16_t* to, End end) {
  const hn::Rebind<uint16_t, F32> du16;
  if constexpr (!End::kTail) {
    hn::StoreU(value, du16, to);
    return;
  }
  HWY_ALIGN uint16_t lanes[HWY_MAX_BYTES / sizeof(uint16_t)];
  hn::Store(value, du16, lanes);
  for (size_t i = 0; i < end.count; ++i) to[i] = lanes[i];
}

// to_bf16 of engine/base/dtype.h.
template <typename End>
HWY_INLINE void store_as(F32 d, VF32 value, uint16_t* to, End end) {
  const hn::RebindToUnsigned<F32> du32;
  const auto bits = hn::BitCast(du32, canonical(d, value));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Set(du32, 0x8000u)));
  store_bits(low_halves(rounded), to, end);
}

// from_f16 and to_f16 of engine/base/dtype.h: instructions from AVX2 on, and before it these
// steps, because Highway's own round towards zero there.
#if HWY_TARGET <= HWY_AVX2
using F16 = hn::Rebind<hwy::float16_t, F32>;

HWY_INLINE VF32 widen_f16(F32 d, VU16 half) {
  return hn::PromoteTo(d, hn::BitCast(F16(), half));
}

HWY_INLINE VU16 round_f16(F32 d, VF32 value) {
  const hn::Rebind<uint16_t, F32> du16;
  return hn::BitCast(du16, hn::DemoteTo(F16(), canonical(d, value)));
}
#else
HWY_INLINE VF32 widen_f16(F32 d, VU16 half) {
  const hn::RebindToUnsigned<F32> du32;
  const auto infinity = hn::Set(du32, 0x0f800000u);
  const auto wide = hn::PromoteTo(du32, half);
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du32, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(wide, hn::Set(du32, 0x7fffu)));
  const auto finite = hn::BitCast(du32, hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f)));
  const auto quiet = hn::IfThenElseZero(hn::Gt(magnitude, infinity), hn::Set(du32, 0x00400000u));
  const auto other = hn::Or(hn::Or(magnitude, hn::Set(du32, 0x7f800000u)), quiet);
  const auto value = hn::IfThenElse(hn::Lt(magnitude, infinity), finite, other);
  return hn::BitCast(d, hn::Or(sign, value));
}

HWY_INLINE VU16 round_f16(F32 d, VF32 value) {
  const hn::RebindToUnsigned<F32> du32;
  const auto bits = hn::BitCast(du32, value);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 0x8000u));
  const auto magnitude = hn::And(bits, hn::Set(du32, 0x7fffffffu));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du32, 1u));
  const auto rounded =
      hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, hn::Set(du32, (112u << 23) - 0xfffu)), odd));
  const auto sum = hn::BitCast(du32, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f)));
  auto half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du32, 0x38800000u)),
                             hn::Sub(sum, hn::Set(du32, 0x3f000000u)), rounded);
  half =
      hn::IfThenElse(hn::Lt(magnitude, hn::Set(du32, 0x477ff000u)), half, hn::Set(du32, 0x7c00u));
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du32, 0x7f800000u)), hn::Set(du32, 0x7e00u),
                        hn::Or(half, sign));
  return low_halves(half);
}
#endif

template <typename End>
HWY_INLINE VF32 load_as(F32 d, const Half* from, End end) {
  return widen_f16(d, load_bits(reinterpret_cast<const uint16_t*>(from), end));
}

template <typename End>
HWY_INLINE void store_as(F32 d, VF32 value, Half* to, End end) {
  store_bits(round_f16(d, value), reinterpret_cast<uint16_t*>(to), end);
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard for every instruction set
