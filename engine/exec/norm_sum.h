// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/plan/memory_map.h"
#include "kernels/sum_squares.h"

namespace strata::exec {

// The sum of squares of all gradients, from the results of NormPartial, one by one.
struct NormSum {
  double sum = 0;
  double not_finite = 0;
};
static_assert(sizeof(NormSum) == plan::kNormBytes);

inline void add_partials(NormSum& sum, const std::byte* partials, int64_t bytes) {
  const auto* each = reinterpret_cast<const kernels::SquaresPartial*>(partials);
  for (size_t i = 0; i < static_cast<size_t>(bytes) / sizeof(*each); ++i) {
    sum.sum += each[i].sum;
    sum.not_finite += each[i].not_finite;
  }
}

}  // namespace strata::exec
