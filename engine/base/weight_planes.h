// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/base/dtype.h"
#include "engine/base/recipe.h"

namespace strata {

// Consecutive elements of a parameter in the planes of a recipe, in the caller's memory:
//
//   master      f32 masters alone
//   hi, lo      their halves (split_master)
//   hi, master  weights that are rounded from masters
//   hi          weights of the type `weights` alone, of a frozen parameter or a part of another
//               rank
template <bool kConst>
struct WeightPlanesOf {
  template <typename T>
  using Pointer = std::conditional_t<kConst, const T*, T*>;

  Pointer<float> master = nullptr;
  Pointer<uint16_t> hi = nullptr;
  Pointer<uint16_t> lo = nullptr;
  DType weights = DType::kBF16;  // of hi

  operator WeightPlanesOf<true>() const requires(!kConst) { return {master, hi, lo, weights}; }

  WeightPlanesOf from(int64_t element) const {
    return {master ? master + element : nullptr, hi ? hi + element : nullptr,
            lo ? lo + element : nullptr, weights};
  }
  float master_at(int64_t element) const {
    if (master) return master[element];
    if (lo) return join_master(hi[element], lo[element]);
    return weights == DType::kF16 ? from_f16(hi[element]) : from_bf16(hi[element]);
  }
  void set(int64_t element, float value) const requires(!kConst) {
    const SplitMaster split = split_master(value);
    if (master) master[element] = value;
    if (hi) hi[element] = weights == DType::kF16 ? to_f16(value) : split.hi;
    if (lo) lo[element] = split.lo;
  }
};
using WeightPlanes = WeightPlanesOf<false>;
using ConstWeightPlanes = WeightPlanesOf<true>;

// From pointers to elements of the planes kHi and kLo; lo is null where it is absent.
inline WeightPlanes weight_planes(Recipe recipe, void* hi, void* lo) {
  switch (planes_of(recipe).from) {
    case WeightsFrom::kMaster:
      return {.master = static_cast<float*>(hi)};
    case WeightsFrom::kHighHalf:
      return {.hi = static_cast<uint16_t*>(hi), .lo = static_cast<uint16_t*>(lo)};
    case WeightsFrom::kRounded:
      break;
  }
  return {.master = static_cast<float*>(lo),
          .hi = static_cast<uint16_t*>(hi),
          .weights = weight_dtype(recipe)};
}

}  // namespace strata
