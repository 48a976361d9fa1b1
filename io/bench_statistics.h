// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace strata::io {

// Needs at least one value.
double median_of(std::vector<double> values);

struct Interval {
  double median = 0;
  double low = 0;  // of the 95 % bootstrap interval of the median
  double high = 0;
  size_t count = 0;
};
// Deterministic: the resampling is seeded. Needs at least one value.
Interval bootstrap_median(const std::vector<double>& values);

}  // namespace strata::io
