// SPDX-License-Identifier: Apache-2.0
#include "io/bench_statistics.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/rng.h"

namespace strata::io {

double median_of(std::vector<double> values) {
  STRATA_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Interval bootstrap_median(const std::vector<double>& values) {
  constexpr int kResamples = 10000;
  const Philox random(42);
  std::vector<double> medians;
  std::vector<double> sample(values.size());
  for (uint64_t i = 0; i < kResamples; ++i) {
    for (size_t k = 0; k < sample.size(); ++k) sample[k] = values[random.u64(i, k) % values.size()];
    medians.push_back(median_of(sample));
  }
  std::sort(medians.begin(), medians.end());
  return {.median = median_of(values),
          .low = medians[kResamples * 25 / 1000],
          .high = medians[kResamples * 975 / 1000],
          .count = values.size()};
}

}  // namespace strata::io
