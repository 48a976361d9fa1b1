// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/channel.h"

namespace strata::io {

enum class BenchMode : uint8_t {
  kRead,
  kWrite,
  kMixed,     // by turns: reads through one half of the scratch, writes through the other
  kTraining,  // the traffic of offloaded training, see bench_training.cpp
};

const char* name_of(BenchMode mode);

struct BenchShape {
  BenchMode mode = BenchMode::kRead;
  uint64_t block_bytes = 1 << 20;  // of one request
  uint32_t depth = 16;             // requests in flight, over all files
  uint32_t files = 1;              // in each directory
};

struct BenchOptions {
  std::vector<std::string> directories = {};
  uint64_t bytes = uint64_t{2} << 30;  // of scratch; larger than the caches of the drives is better
  double seconds = 5;                  // of each measurement
  Backend backend = Backend::kAuto;
  bool verify = true;                               // checksums
  uint64_t write_limit_bytes = uint64_t{64} << 30;  // of all measurements and fillings together
  double sample_s = 1;                              // spacing of the rates over time
  RateLimits limits = {};
  bool allow_memory_filesystem = false;
};

struct LatencySummary {
  uint64_t count = 0;
  double p50_s = 0;
  double p99_s = 0;
  double p999_s = 0;
  double max_s = 0;
};

struct BenchSample {
  double at_s = 0;  // since the start
  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
};

struct BenchFile {
  std::string name;
  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
};

struct BenchResult {
  BenchShape shape;
  std::string backend;
  bool direct = true;
  bool verified = true;
  double seconds = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  double cpu_s = 0;  // of the whole process, less the optimizer of the training pattern
  LatencySummary read;
  LatencySummary write;
  std::vector<BenchFile> files;
  std::vector<BenchSample> samples;
  bool write_limit_reached = false;  // stopped early
  double optimizer_s = 0;            // training: processor time of the optimizer
  uint32_t steps = 0;                // training: whole steps

  double read_bytes_per_s() const { return static_cast<double>(bytes_read) / seconds; }
  double write_bytes_per_s() const { return static_cast<double>(bytes_written) / seconds; }
  double bytes_per_s() const { return read_bytes_per_s() + write_bytes_per_s(); }
  double cpu_s_per_gb() const {
    return cpu_s * 1e9 / static_cast<double>(bytes_read + bytes_written);
  }
};

// Measures what a set of directories gives, with the same channels that training uses.
//
// Guarantees: reads hit blocks that were written; no more than write_limit_bytes are written; its
// files are gone when it goes, or when the process dies. Memory: four blocks for each request in
// flight. Threads: one caller; the training pattern runs four lanes of its own. Failure: throws
// Error; kConfig for a shape that cannot work.
class IoBench {
 public:
  explicit IoBench(const BenchOptions& options);
  ~IoBench();

  BenchResult measure(const BenchShape& shape);
  uint64_t bytes_written() const { return bytes_written_; }

 private:
  void prepare(const BenchShape& shape);
  BenchResult sweep(const BenchShape& shape);
  BenchResult training(const BenchShape& shape);
  ChannelOptions channel_options(const BenchShape& shape, char* memory, uint64_t bytes);
  uint64_t write_allowance() const;

  BenchOptions options_;
  std::unique_ptr<RateLimiter> limiter_;
  std::unique_ptr<Volume> volume_;  // filled; made again when a shape needs another
  uint32_t files_ = 0;
  uint64_t bytes_written_ = 0;
};

// Processor time of the process so far.
double process_cpu_s();
LatencySummary summarize(const LatencyHistogram& histogram);

}  // namespace strata::io
