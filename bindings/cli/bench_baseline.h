// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/bench_io.h"

namespace strata::cli {

// The results of an earlier `strata bench io --json`, and their conditions.
struct Baseline {
  struct Rate {
    std::string shape;  // see name_of()
    double bytes_per_s = 0;
    double p99_s = 0;    // of a request: the longer of reads and writes; 0: not known
    double seconds = 0;  // of the measurement; 0: not known
    std::string backend;
    bool verified = true;
  };
  std::string path;
  std::vector<Rate> rates;  // of what was measured; at least one
  std::string rate_limit;
  uint64_t directories = 0;  // 0: not known
  uint64_t scratch_bytes = 0;
};

// A shape counts as slower, whatever its rate, when its p99 latency is more than this many times
// the baseline's, divided by (1 - tolerance). On a shared machine, p99 varies by up to a factor of
// two.
inline constexpr double kP99Factor = 3;

// The name of a shape in messages and baselines.
std::string name_of(const io::BenchShape& shape);

// Throws Error (kConfig) when the file cannot be read or has no measured shape.
Baseline read_baseline(const std::string& path);

// What the user asked to measure.
struct BaselineQuestion {
  std::vector<io::BenchShape> shapes;
  bool shapes_given = false;  // the options name the shapes
  double tolerance = 0;
};

// Called before measuring. Throws Error (kConfig) when no shape is in the baseline, or when the
// rate limit, or the checksums or backend of a shape, are known to differ.
void check_comparable(const Baseline& baseline, const io::BenchOptions& options,
                      const BaselineQuestion& question);

struct BaselineVerdict {
  std::string table;
  int slower = 0;    // shapes that are slower by more than the tolerance, or in p99 by kP99Factor
  int missing = 0;   // shapes of the baseline that were asked for but not measured
  int compared = 0;  // shapes that both have

  bool failed() const { return slower + missing > 0; }
};
BaselineVerdict compare_with_baseline(const Baseline& baseline, const io::BenchOptions& options,
                                      const std::vector<io::BenchResult>& results,
                                      const BaselineQuestion& question);

}  // namespace strata::cli
