// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/bench_fio.h"
#include "io/bench_io.h"

namespace strata::cli {

// Results of `strata bench io` as people, programs and spreadsheets read them.
std::string io_table(const std::vector<io::BenchResult>& results);
std::string io_rates_over_time(const io::BenchResult& result);
std::string io_json(const io::BenchOptions& options, const std::vector<io::BenchResult>& results,
                    const std::vector<io::FioComparison>& comparisons);
std::string io_csv(const std::vector<io::BenchResult>& results);
std::string fio_table(const std::vector<io::FioComparison>& comparisons);

struct BaselineVerdict {
  std::string table;
  int slower = 0;    // shapes that are slower than the baseline by more than the tolerance
  int compared = 0;  // shapes that both have
};
// Throws Error(kConfig) when the text is not what io_json() wrote.
BaselineVerdict compare_with_baseline(const std::string& baseline_json,
                                      const std::vector<io::BenchResult>& results,
                                      double tolerance);

}  // namespace strata::cli
