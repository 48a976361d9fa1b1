// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace strata::io {

struct SlowReport {
  uint32_t file = 0;  // the one whose requests took longest
  double bytes_per_s = 0;
  double best_bytes_per_s = 0;
};

// Notices that a drive has become slow: a full write cache, heat, a dying drive, another user.
//
// Only time with every request slot in use counts, so a lane with little to do is never called
// slow. Reports when two windows in a row fall below a quarter of the best window, and again at
// each halving. Threads: belongs to one lane.
class SpeedWatch {
 public:
  explicit SpeedWatch(size_t files) : latency_s_(files), requests_(files) {}

  // One request is done. `full`: every slot was in use until now.
  std::optional<SlowReport> add(uint32_t file, uint64_t bytes, double latency_s, double now_s,
                                bool full);

 private:
  std::optional<SlowReport> close_window();

  std::vector<double> latency_s_;  // sums of this window, by file
  std::vector<uint64_t> requests_;
  double last_s_ = 0;
  bool was_full_ = false;
  double window_s_ = 0;
  uint64_t window_bytes_ = 0;
  double best_ = 0;
  uint32_t slow_windows_ = 0;
  double reported_ = std::numeric_limits<double>::infinity();
};

}  // namespace strata::io
