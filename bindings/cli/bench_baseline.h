// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/bench_io.h"

namespace strata::cli {

// What an earlier `strata bench io --json` measured, and under which conditions.
struct Baseline {
  struct Rate {
    std::string shape;  // see name_of()
    double bytes_per_s = 0;
    double p99_s = 0;    // of a request: the longer of reads and writes; 0 where it is not known
    double seconds = 0;  // it was measured; as the next, 0 or empty where it is not known
    std::string backend;
    bool verified = true;
  };
  std::string path;
  std::vector<Rate> rates;  // of what was measured; at least one
  std::string rate_limit;
  uint64_t directories = 0;  // 0: not known
  uint64_t scratch_bytes = 0;
};

// A shape whose p99 latency is so many times the baseline's over (1 - tolerance) is slower,
// whatever its rate. One run has up to twice another's on a machine that others use too.
inline constexpr double kP99Factor = 3;

// A shape as messages and baselines name it.
std::string name_of(const io::BenchShape& shape);

// Throws Error (kConfig) for what cannot be read or holds no measured shape.
Baseline read_baseline(const std::string& path);

// What a run is asked to measure.
struct BaselineQuestion {
  std::vector<io::BenchShape> shapes;
  bool shapes_given = false;  // by options: the user wants these and no others
  double tolerance = 0;
};

// Before anything is measured: throws Error (kConfig) where none of the shapes is in the baseline,
// and where checksums or the backend of one that is, or the rate limit, are known to differ.
void check_comparable(const Baseline& baseline, const io::BenchOptions& options,
                      const BaselineQuestion& question);

struct BaselineVerdict {
  std::string table;
  int slower = 0;    // shapes that are slower by more than the tolerance, or in p99 by kP99Factor
  int missing = 0;   // shapes of the baseline that should have been measured and were not
  int compared = 0;  // shapes that both have

  bool failed() const { return slower + missing > 0; }
};
BaselineVerdict compare_with_baseline(const Baseline& baseline, const io::BenchOptions& options,
                                      const std::vector<io::BenchResult>& results,
                                      const BaselineQuestion& question);

}  // namespace strata::cli
