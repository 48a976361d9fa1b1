// SPDX-License-Identifier: Apache-2.0
// Included once for each instruction set (see foreach_target.h), so the guard is Highway's.
#if defined(STRATA_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_TRANSPOSE_INL_H_
#undef STRATA_TRANSPOSE_INL_H_
#else
#define STRATA_TRANSPOSE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/cpu/simd_typed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(F32()));

#if HWY_TARGET != HWY_SCALAR

// Loads four elements of each of the rows 0, 4, 8, ..., one row for each block of a vector.
HWY_INLINE VF32 load_quads(F32 d, const float* from, int64_t stride) {
#if HWY_TARGET <= HWY_AVX2
  const hn::FixedTag<float, 4> quad;
  const hn::FixedTag<float, 8> two;
  const auto low = hn::Combine(two, hn::LoadU(quad, from + 4 * stride), hn::LoadU(quad, from));
#if HWY_TARGET <= HWY_AVX3
  const auto high =
      hn::Combine(two, hn::LoadU(quad, from + 12 * stride), hn::LoadU(quad, from + 8 * stride));
  return hn::Combine(d, high, low);
#else
  return low;
#endif
#else
  static_assert(kLanes == 4);
  return hn::LoadU(d, from);
#endif
}

// [kLanes, 4] -> [4, kLanes].
HWY_INLINE void transpose_quad(const float* from, int64_t stride, float* to, int64_t to_stride) {
  const F32 d;
  const hn::RepartitionToWide<hn::RebindToUnsigned<F32>> pairs;
  const VF32 a = load_quads(d, from, stride);
  const VF32 b = load_quads(d, from + stride, stride);
  const VF32 c = load_quads(d, from + 2 * stride, stride);
  const VF32 e = load_quads(d, from + 3 * stride, stride);
  const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(d, a, b));
  const auto ab_high = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
  const auto ce_low = hn::BitCast(pairs, hn::InterleaveLower(d, c, e));
  const auto ce_high = hn::BitCast(pairs, hn::InterleaveUpper(d, c, e));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, ab_low, ce_low)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, ab_low, ce_low)), d, to + to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, ab_high, ce_high)), d, to + 2 * to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, ab_high, ce_high)), d, to + 3 * to_stride);
}

#endif

// to[c, r] = from[r, c] of [rows, cols].
HWY_INLINE void transpose_block(const float* from, int64_t stride, int64_t rows, int64_t cols,
                                float* to, int64_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  constexpr int64_t whole_rows = 0, whole_cols = 0;
#else
  const int64_t whole_rows = rows / kLanes * kLanes;
  const int64_t whole_cols = cols / 4 * 4;
  for (int64_t r = 0; r < whole_rows; r += kLanes) {
    for (int64_t c = 0; c < whole_cols; c += 4) {
      transpose_quad(from + r * stride + c, stride, to + c * to_stride + r, to_stride);
    }
  }
#endif
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = c < whole_cols ? whole_rows : 0; r < rows; ++r) {
      to[c * to_stride + r] = from[r * stride + c];
    }
  }
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard for every instruction set
