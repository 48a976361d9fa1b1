// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace strata::io {

// The share of stripes for each directory (the sum is 1), for VolumeOptions::weights, from the rate
// that each directory gave alone. Empty when the rates are alike within a quarter: equal stripes
// cost nothing then, and noise has no effect.
std::vector<double> weights_of(const std::vector<double>& bytes_per_s);

// The most that measuring one directory writes.
inline constexpr uint64_t kWeightWriteBytes = uint64_t{256} << 20;

// Whether measuring can matter: there are several directories, each on a drive of its own.
bool may_differ(const std::vector<std::string>& directories);

struct DriveWeightOptions {
  std::vector<std::string> directories = {};
  double deadline_s = 600;  // of one request
  double seconds = 0.3;     // the most for each directory, after its scratch has been written once
  std::string lock_name = "strata.lock";
  bool allow_memory_filesystem = false;
  const std::atomic<bool>* stop = nullptr;  // when set to true, it ends early without weights
};
struct DriveWeights {
  std::vector<double> weights = {};  // of the directories; empty: all equal
  uint64_t bytes_written = 0;        // by the measurement
};
// Measures each directory alone, with reads and writes at once, if the directories may differ.
// Returns no weights when a directory has no room for a measurement. Throws what a volume throws.
DriveWeights measure_weights(const DriveWeightOptions& options);

}  // namespace strata::io
