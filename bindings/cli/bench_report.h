// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bindings/cli/bench_advice.h"
#include "bindings/cli/bench_baseline.h"
#include "engine/config/machine.h"
#include "io/bench_checksums.h"
#include "io/bench_fio.h"
#include "io/bench_io.h"

namespace strata::cli {

// The results of one `strata bench io`.
struct IoReport {
  io::BenchOptions options;
  std::vector<io::BenchResult> results;
  uint64_t bytes_written = 0;
  std::optional<io::BenchResult> idle;  // for the latency in the profile
  std::vector<io::FioComparison> fio;
  std::vector<io::ChecksumComparison> checksums;
  std::optional<config::Machine> machine;
  std::string profile_path;  // of the machine's profile; empty: not kept
  std::optional<Advice> advice;
  std::optional<BaselineVerdict> baseline;

  bool empty() const { return results.empty() && fio.empty() && checksums.empty(); }
};

// The report for people, programs and spreadsheets. The CSV has only the rows of results;
// everything else goes to standard error.
std::string io_text(const IoReport& report);
std::string io_json(const IoReport& report);
std::string io_csv(const IoReport& report);

// Parts of the text.
std::string io_table(const std::vector<io::BenchResult>& results);
std::string io_rates_over_time(const io::BenchResult& result);
std::string fio_table(const std::vector<io::FioComparison>& comparisons);
std::string checksum_table(const std::vector<io::ChecksumComparison>& comparisons);

}  // namespace strata::cli
