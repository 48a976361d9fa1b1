// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/device.h"

// Measures the link between the host's memory and that of a device.
namespace strata::exec {

struct LinkBench {
  int64_t bytes = 0;   // of a copy; takes twice as much on both sides
  bool pinned = true;  // the host's memory
  double seconds = 1;  // about, of all that is measured
};

struct LinkFigures {
  double upload_bytes_per_s = 0;
  double download_bytes_per_s = 0;
  double both_bytes_per_s = 0;  // of both directions together; 0 where memory is not pinned
  bool pinned = false;          // false also where the system refuses to pin memory
};

// Throws Error as the device does.
LinkFigures bench_link(kernels::Device& device, const LinkBench& bench);

// Seconds from the issue of one copy of kSmallCopyBytes from or to pinned memory until the caller
// sees that it has ended.
struct LinkLatency {
  double upload_s = 0;
  double download_s = 0;
};
inline constexpr int64_t kSmallCopyBytes = 4096;
LinkLatency bench_latency(kernels::Device& device, double seconds);

}  // namespace strata::exec
