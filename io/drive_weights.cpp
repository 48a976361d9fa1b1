// SPDX-License-Identifier: Apache-2.0
#include "io/drive_weights.h"

#include <algorithm>
#include <numeric>

#include "io/bench_io.h"
#include "io/drives.h"

namespace strata::io {
namespace {

constexpr double kAlike = 0.8;  // slowest / fastest

}  // namespace

std::vector<double> weights_of(const std::vector<double>& bytes_per_s) {
  if (bytes_per_s.size() < 2) return {};
  const auto [slowest, fastest] = std::minmax_element(bytes_per_s.begin(), bytes_per_s.end());
  if (!(*slowest > 0) || *slowest >= kAlike * *fastest) return {};
  const double sum = std::accumulate(bytes_per_s.begin(), bytes_per_s.end(), 0.0);
  std::vector<double> weights;
  for (const double rate : bytes_per_s) weights.push_back(rate / sum);
  return weights;
}

bool may_differ(const std::vector<std::string>& directories) {
  return directories.size() > 1 && !share_a_drive(directories);
}

DriveWeights measure_weights(const DriveWeightOptions& options) {
  if (!may_differ(options.directories)) return {};
  std::vector<double> rates;
  DriveWeights measured;
  try {
    for (const std::string& directory : options.directories) {
      IoBench bench({.directories = {directory},
                     .bytes = uint64_t{64} << 20,
                     .seconds = options.seconds,
                     .write_limit_bytes = kWeightWriteBytes,
                     .deadline_s = options.deadline_s,
                     .lock_name = options.lock_name,
                     .owner = "measuring the drive",
                     .allow_memory_filesystem = options.allow_memory_filesystem,
                     .stop = options.stop});
      rates.push_back(bench.measure({.mode = BenchMode::kMixed, .depth = 8}).bytes_per_s());
      measured.bytes_written += bench.bytes_written();
      if (bench.stopped()) return measured;
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kDoesNotFit) return measured;
    throw;
  }
  measured.weights = weights_of(rates);
  return measured;
}

}  // namespace strata::io
