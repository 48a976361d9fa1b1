// SPDX-License-Identifier: Apache-2.0
#include "io/latency.h"

#include <algorithm>
#include <cmath>

namespace strata::io {

void LatencyHistogram::add(double seconds) {
  ++count_;
  max_s_ = std::max(max_s_, seconds);
  const double us = std::max(seconds * 1e6, 1.0);
  int exponent = 0;
  const double fraction =
      std::frexp(us, &exponent);  // us = fraction * 2^exponent, fraction in [0.5, 1)
  const int octave = std::min(exponent - 1, kOctaves - 1);
  const int sub = static_cast<int>((fraction - 0.5) * 2 * kSub);
  ++buckets_[static_cast<size_t>(octave * kSub + sub)];
}

void LatencyHistogram::merge(const LatencyHistogram& other) {
  for (size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  max_s_ = std::max(max_s_, other.max_s_);
}

double LatencyHistogram::percentile_s(double fraction) const {
  const auto wanted = static_cast<uint64_t>(std::ceil(fraction * static_cast<double>(count_)));
  uint64_t seen = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen < wanted || seen == 0) continue;
    const int octave = static_cast<int>(i) / kSub;
    const double edge = 1.0 + static_cast<double>(static_cast<int>(i) % kSub + 1) / kSub;
    return std::min(std::ldexp(edge, octave) * 1e-6, max_s_);
  }
  return max_s_;
}

}  // namespace strata::io
