// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace strata::io {

// A histogram of durations from 1 us to about 20 minutes, with 16 buckets for each doubling.
//
// A percentile is the upper edge of its bucket, so it is at most 6.3 % too large; the maximum is
// exact.
class LatencyHistogram {
 public:
  void add(double seconds);
  void merge(const LatencyHistogram& other);
  uint64_t count() const { return count_; }
  double max_s() const { return max_s_; }
  // fraction in (0, 1]; 0 when nothing was counted.
  double percentile_s(double fraction) const;

 private:
  static constexpr int kSub = 16;
  static constexpr int kOctaves = 31;
  std::array<uint64_t, kSub * kOctaves> buckets_{};
  uint64_t count_ = 0;
  double max_s_ = 0;
};

}  // namespace strata::io
