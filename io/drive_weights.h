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

// Whether there is anything to measure: several directories, each on a drive of its own.
bool may_differ(const std::vector<std::string>& directories);

struct DriveWeightOptions {
  std::vector<std::string> directories = {};
  double deadline_s = 600;  // of one request
  double seconds = 0.3;     // of each directory at most, besides writing its scratch once
  std::string lock_name = "strata.lock";
  bool allow_memory_filesystem = false;
  const std::atomic<bool>* stop = nullptr;  // set by others: it ends early, with nothing
};
struct DriveWeights {
  std::vector<double> weights = {};  // of the directories; empty: alike
  uint64_t bytes_written = 0;        // to find that out
};
// Measures each directory alone, with reads and writes at once, if they may differ. No weights too
// where one has no room to measure. Throws what a volume throws.
DriveWeights measure_weights(const DriveWeightOptions& options);

}  // namespace strata::io
