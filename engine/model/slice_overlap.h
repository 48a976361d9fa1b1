// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "engine/model/spec.h"

// What two tensor slices of a parameter, of the same or of different numbers of ranks, both have.
namespace strata::model {

// Elements that follow each other in both: `count` of them from `here` on, and from `there` on.
struct SliceOverlap {
  int64_t here = 0;
  int64_t there = 0;
  int64_t count = 0;
};

// Visits what elements [first, first + count) of `here` have in common with `there`, ascending in
// both. The parameters are slices of one parameter, or all of it.
void for_each_overlap(const Parameter& here, int64_t first, int64_t count, const Parameter& there,
                      const std::function<void(const SliceOverlap&)>& visit);

}  // namespace strata::model
