// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "engine/base/dtype.h"

// y[i] = ((x0[i] + x1[i]) + x2[i]) + ..., or (((before[i] + x0[i]) + x1[i]) + x2[i]) + ...
//
// of values of several ranks, in fp32, one by one in the order of `x`. Elements of `x` are f32 or
// bf16. Those of y are f32, or bf16 to which the sum is rounded, to nearest with ties to even. One
// source is converted or copied. y may be one of the sources, or `before`, if it has their type;
// otherwise it overlaps none. A NaN is written as 0x7fc00000, in bf16 as 0x7fc0. Bits do not depend
// on threads and on how a range is cut. Every backend has the bits of `ref`. The roof is memory
// bandwidth.
namespace strata::kernels {

inline constexpr int kMostSources = 8;

struct OrderedSum {
  int64_t count = 0;
  int sources = 0;  // 1 to kMostSources
  DType from = DType::kF32;
  std::array<const void*, kMostSources> x = {};  // [sources][count]
  DType to = DType::kF32;
  void* y = nullptr;              // [count]
  const float* before = nullptr;  // [count], a sum that goes on; null: none
};

// Whether it has sources, not too many, and types that a sum takes.
inline bool is_ordered_sum(const OrderedSum& op) {
  const auto is_taken = [](DType type) { return type == DType::kF32 || type == DType::kBF16; };
  return op.sources >= 1 && op.sources <= kMostSources && is_taken(op.from) && is_taken(op.to);
}

}  // namespace strata::kernels
