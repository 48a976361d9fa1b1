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

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF32 = hn::Vec<F32>;

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
HWY_INLINE VF32 load_as(F32 d, const uint16_t* from, End end) {
  const hn::RebindToUnsigned<F32> du32;
  const hn::Rebind<uint16_t, F32> du16;
  if constexpr (!End::kTail) {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, hn::LoadU(du16, from))));
  }
  HWY_ALIGN uint16_t lanes[HWY_MAX_BYTES / sizeof(uint16_t)] = {};
  for (size_t i = 0; i < end.count; ++i) lanes[i] = from[i];
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, hn::Load(du16, lanes))));
}

// canonical() of engine/base/dtype.h.
HWY_INLINE VF32 canonical(F32 d, VF32 value) {
  const VF32 nan = hn::BitCast(d, hn::Set(hn::RebindToUnsigned<F32>(), 0x7fc00000u));
  return hn::IfThenElse(hn::IsNaN(value), nan, value);
}

// The low halves of 32-bit lanes.
template <typename VU32>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, F32>> low_halves(VU32 bits) {
  return hn::TruncateTo(hn::Rebind<uint16_t, F32>(), bits);
}

template <typename End>
HWY_INLINE void store_bits(hn::Vec<hn::Rebind<uint16_t, F32>> value, uint16_t* to, End end) {
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

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard for every instruction set
