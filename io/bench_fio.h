// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/bench_io.h"

namespace strata::io {

struct FioResult {
  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
  double cpu_s_per_gb = 0;
  uint64_t bytes_written = 0;
  double bytes_per_s() const { return read_bytes_per_s + write_bytes_per_s; }
};

// The last line that fio printed with --output-format=terse --terse-version=3; nothing when it is
// not one, or reports an error.
std::optional<FioResult> parse_fio_terse(std::string_view output);

// The same shape under fio: same directories, number of files, block size, depth, mix and O_DIRECT;
// one job on io_uring with registered files and memory. Its files are named, so they are removed by
// the destructor.
//
// Failure: the constructor throws Error(kConfig) where fio is missing, measure() Error(kIo) when
// fio fails.
class FioBench {
 public:
  FioBench(const BenchOptions& options, uint32_t files_per_directory);
  ~FioBench();
  FioBench(const FioBench&) = delete;
  FioBench& operator=(const FioBench&) = delete;

  FioResult measure(const BenchShape& shape);
  uint64_t bytes_written() const { return bytes_written_; }

 private:
  FioResult run_job(const std::string& job);

  BenchOptions options_;
  std::vector<std::string> paths_;
  bool laid_out_ = false;
  uint64_t bytes_written_ = 0;
};

struct RatioInterval {
  double median = 0;
  double low = 0;  // of the 95 % bootstrap interval of the median
  double high = 0;
  size_t count = 0;
};
RatioInterval bootstrap_ratio(std::vector<double> ratios);

// Our engine and fio, turn by turn, with a second fio in every round as the control: what the
// machine's own noise does to a ratio of equals.
struct FioComparison {
  BenchShape shape;
  bool verified = true;
  double strata_bytes_per_s = 0;  // medians
  double fio_bytes_per_s = 0;
  double strata_cpu_s_per_gb = 0;
  double fio_cpu_s_per_gb = 0;
  RatioInterval ratio;    // strata / fio
  RatioInterval control;  // fio / fio
};
// Fewer rounds where the limit on bytes written, fio's included, ends first.
FioComparison compare_with_fio(IoBench& bench, FioBench& fio, const BenchShape& shape,
                               uint32_t rounds, uint64_t write_limit_bytes);

}  // namespace strata::io
