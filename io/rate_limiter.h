// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "io/volume.h"

namespace strata::io {

struct RateLimits {
  double read_bytes_per_s = 0;   // 0 = no limit
  double write_bytes_per_s = 0;  // 0 = no limit
  bool half_duplex = false;      // reads and writes take turns on one timeline
  double burst_s = 0.005;        // unused time that may be made up; covers late wake-ups
};

// Delays the requests of all channels that share it, as a drive of the given speeds would.
//
// Guarantees: over a busy period the bytes of a direction stay within rate * (time + burst), and
// reach it within 1 % when requests are always waiting. Requests are served in the order of calls.
// Threads: any.
class RateLimiter {
 public:
  explicit RateLimiter(const RateLimits& limits);

  bool limits(Direction direction) const;
  // Books the next free time on the drive and returns its start, in the seconds of `now_s`. The
  // request must not start earlier. Book only one request ahead, or urgent requests of other
  // channels queue behind the booked ones.
  double book(Direction direction, uint64_t bytes, double now_s);

  // "read 1.00 GB/s, write 0.50 GB/s, half duplex", for reports; empty when nothing is limited.
  std::string describe() const;

 private:
  const RateLimits limits_;
  std::mutex mu_;
  double free_at_s_[2] = {-1e300, -1e300};  // Guarded by mu_
};

}  // namespace strata::io
