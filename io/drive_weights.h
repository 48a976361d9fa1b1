// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace strata::io {

// Stripes that each directory is to get of 1 in all, for VolumeOptions::weights, from what each
// gave alone. Empty where they are alike within a quarter: even stripes cost nothing then, and
// noise makes no difference.
std::vector<double> weights_of(const std::vector<double>& bytes_per_s);

// The most that measuring one directory writes.
inline constexpr uint64_t kWeightWriteBytes = uint64_t{256} << 20;

struct DriveWeightOptions {
  std::vector<std::string> directories = {};
  double seconds = 0.3;  // of each directory at most, besides writing its scratch once
  std::string lock_name = "strata.lock";
  bool allow_memory_filesystem = false;
  const std::atomic<bool>* stop = nullptr;  // set by others: it ends early, with nothing
};
// Measures each directory alone, with reads and writes at once. Empty too where they lie on one
// drive, or where one has no room to measure. Throws what a volume throws.
std::vector<double> measure_weights(const DriveWeightOptions& options);

}  // namespace strata::io
