// SPDX-License-Identifier: Apache-2.0
// Included once for each instruction set (see foreach_target.h), so the guard is Highway's.
#if defined(STRATA_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_ACTIVATION_INL_H_
#undef STRATA_ACTIVATION_INL_H_
#else
#define STRATA_ACTIVATION_INL_H_
#endif

#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/activation.h"
#include "kernels/cpu/simd_typed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

// Clamps x so that exp() does not overflow; beyond the clamp, sigmoid rounds to 0 or 1 in f32.
HWY_INLINE VF32 sigmoid(F32 d, VF32 x) {
  const VF32 one = hn::Set(d, 1.0f);
  const VF32 bounded = hn::Max(hn::Set(d, -87.0f), x);
  return hn::Div(one, hn::Add(one, hn::Exp(d, hn::Neg(bounded))));
}

// The parts of an activation and its derivative: s = sigmoid(t(x)) and t'(x).
struct ActivationParts {
  VF32 s, dt;
};

template <Activation kActivation>
HWY_INLINE ActivationParts activation_parts(F32 d, VF32 x) {
  static_assert(kActivation == Activation::kSilu || kActivation == Activation::kGeluTanh);
  if constexpr (kActivation == Activation::kSilu) return {sigmoid(d, x), hn::Set(d, 1.0f)};
  // Clamps x so that the cube does not overflow; beyond 16, s rounds to 0 or 1 in f32.
  const VF32 bounded = hn::Clamp(x, hn::Set(d, -16.0f), hn::Set(d, 16.0f));
  const VF32 square = hn::Mul(bounded, bounded);
  const VF32 slope = hn::Set(d, static_cast<float>(kGeluSlope));
  const VF32 cubic = hn::Mul(square, hn::Set(d, static_cast<float>(kGeluCubic)));
  const VF32 one = hn::Set(d, 1.0f);
  const VF32 t = hn::Mul(hn::Mul(slope, bounded), hn::Add(one, cubic));
  const VF32 dt = hn::Mul(slope, hn::MulAdd(hn::Set(d, 3.0f), cubic, one));
  return {sigmoid(d, t), dt};
}

template <Activation kActivation>
HWY_INLINE VF32 activate(F32 d, VF32 x) {
  return hn::Mul(x, activation_parts<kActivation>(d, x).s);
}

// s * (1 + x * (1 - s) * t').
template <Activation kActivation>
HWY_INLINE VF32 activation_slope(F32 d, VF32 x, const ActivationParts& parts) {
  const VF32 one = hn::Set(d, 1.0f);
  VF32 rest = hn::Sub(one, parts.s);
  if constexpr (kActivation != Activation::kSilu) rest = hn::Mul(rest, parts.dt);
  return hn::Mul(parts.s, hn::MulAdd(x, rest, one));
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard for every instruction set
