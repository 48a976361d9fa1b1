// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/bench_memory.h"
#include "io/channel.h"

namespace strata::io {

enum class BenchMode : uint8_t {
  kRead,
  kWrite,
  kMixed,  // alternating: reads from one half of the scratch, writes to the other
};

const char* name_of(BenchMode mode);

struct BenchShape {
  BenchMode mode = BenchMode::kRead;
  uint64_t block_bytes = 1 << 20;  // of one request
  uint32_t depth = 16;             // requests in flight, over all files
  uint32_t files = 1;              // in each directory

  bool operator==(const BenchShape&) const = default;
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
  double deadline_s = 600;           // of one request
  std::vector<double> weights = {};  // of the directories, as in VolumeOptions
  std::string lock_name = "strata.lock";
  std::string owner = "strata bench io";
  bool allow_memory_filesystem = false;
  const std::atomic<bool>* stop = nullptr;  // when set to true, a running measurement ends early
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
  double cpu_s = 0;  // of the whole process
  LatencySummary read;
  LatencySummary write;
  std::vector<BenchFile> files;
  std::vector<BenchSample> samples;
  bool write_limit_reached = false;  // stopped early, or not begun
  bool interrupted = false;          // stopped early by BenchOptions::stop, or not begun

  double read_bytes_per_s() const { return rate_of(bytes_read); }
  double write_bytes_per_s() const { return rate_of(bytes_written); }
  double bytes_per_s() const { return read_bytes_per_s() + write_bytes_per_s(); }
  double cpu_s_per_gb() const {
    return empty() ? 0 : cpu_s * 1e9 / static_cast<double>(bytes_read + bytes_written);
  }
  bool empty() const { return bytes_read + bytes_written == 0; }
  double rate_of(uint64_t bytes) const {
    return bytes == 0 ? 0 : static_cast<double>(bytes) / seconds;
  }
};

// Whether the rate fell during a measurement and stayed low, as on a drive whose fast cache is
// full: the last quarter of the time is far below the best moments. Needs at least 20 samples.
struct Cliff {
  bool found = false;
  double best_bytes_per_s = 0;  // the best tenth of the time
  double tail_bytes_per_s = 0;  // the last quarter: what a long run gets
};
Cliff find_cliff(const BenchResult& result);

// Measures the speed of a set of directories with the channels that training uses.
//
// Guarantees: reads touch only blocks that were written; at most write_limit_bytes are written; the
// files disappear with the object or when the process dies. Memory: two blocks for each request in
// flight. Threads: one caller. Failure: throws Error; kConfig for a shape that cannot work.
class IoBench {
 public:
  // Throws Error (kConfig) for a shape that cannot work in `scratch_bytes`. Creates nothing.
  static void check(const BenchShape& shape, uint64_t scratch_bytes);

  // Whether both have the same files and blocks, so that what was written for one can be read by
  // the other.
  static bool same_volume(const BenchShape& a, const BenchShape& b);

  explicit IoBench(const BenchOptions& options);
  ~IoBench();

  // The result is empty when the limit on bytes written leaves nothing for a shape that writes.
  BenchResult measure(const BenchShape& shape) {
    return measure(shape, options_.seconds, options_.verify);
  }
  // As above, with a duration and a choice of checksums that differ from the options.
  BenchResult measure(const BenchShape& shape, double seconds, bool verify);

  // Whether a shape that reads can be measured with checksums without filling the volume first.
  bool is_filled_for(const BenchShape& shape) const { return !fills_for(shape, true); }

  uint64_t bytes_written() const { return bytes_written_; }
  // Counts bytes that another benchmark wrote against the limit.
  void charge(uint64_t bytes) { bytes_charged_ += bytes; }
  uint64_t bytes_written_by_all() const { return bytes_written_ + bytes_charged_; }
  uint64_t write_allowance() const;
  bool stopped() const { return options_.stop != nullptr && *options_.stop; }

 private:
  bool has_volume_for(const BenchShape& shape) const;
  bool must_fill(const BenchShape& shape) const;
  bool fills_for(const BenchShape& shape, bool verify) const;
  void prepare(const BenchShape& shape, bool verify);
  void make_volume(const BenchShape& shape, uint64_t stripe_bytes, uint64_t checksum_bytes);
  void fill();
  BenchResult sweep(const BenchShape& shape, double seconds, bool verify);
  ChannelOptions channel_options(const BenchShape& shape, bool verify, uint32_t transfers,
                                 const BenchMemory& memory);
  bool direct() const;

  BenchOptions options_;
  std::unique_ptr<RateLimiter> limiter_;
  std::unique_ptr<Volume> volume_;  // filled; replaced when a shape needs another
  uint32_t files_ = 0;
  // Whether each half of the volume has checksums: false after writes without them.
  bool sealed_[2] = {false, false};
  uint64_t bytes_written_ = 0;
  uint64_t bytes_charged_ = 0;
};

// Processor time of this process so far.
double process_cpu_s();
LatencySummary summarize(const LatencyHistogram& histogram);

}  // namespace strata::io
