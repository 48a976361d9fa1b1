// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace strata::io {

struct SlowReport {
  double bytes_per_s = 0;
  double best_bytes_per_s = 0;
};

// Detects that the drive of one file has become slow: a full write cache, heat, a dying drive,
// another user.
//
// Counts only time in which the file has its share of the channel's requests in flight (at least
// two, including the one that ends), so that neither a lane with little work nor a drive that waits
// for a slower one counts as slow. Reports when two windows in a row are below a quarter of the
// best window, and again at each halving. Threads: belongs to one lane.
class SpeedWatch {
 public:
  // Counts a completed request. `full`: the file still has its share of requests in flight.
  std::optional<SlowReport> add(uint64_t bytes, double now_s, bool full);

 private:
  std::optional<SlowReport> close_window();

  double last_s_ = 0;
  bool was_full_ = false;
  double window_s_ = 0;
  uint64_t window_bytes_ = 0;
  double best_ = 0;
  uint32_t slow_windows_ = 0;
  double reported_ = std::numeric_limits<double>::infinity();
};

}  // namespace strata::io
