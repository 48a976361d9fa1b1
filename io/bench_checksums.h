// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "io/bench_io.h"
#include "io/bench_statistics.h"

namespace strata::io {

// The cost of checksums: every round measures a shape with them, without them, and without them
// once more as the control.
struct ChecksumComparison {
  BenchShape shape;
  double with_bytes_per_s = 0;  // medians
  double without_bytes_per_s = 0;
  double with_cpu_s_per_gb = 0;
  double without_cpu_s_per_gb = 0;
  Interval cost_cpu_s_per_gb;  // of the differences by round
  Interval ratio;              // with / without, of the rates
  Interval control;            // without / without
};
// One round of the comparison: rates in bytes/s, processor time in s/GB.
struct ChecksumRound {
  double with = 0;
  double without = 0;
  double without_again = 0;  // the control
  double with_cpu = 0;
  double without_cpu = 0;
};
ChecksumComparison comparison_of(const BenchShape& shape, const std::vector<ChecksumRound>& rounds);

// Runs fewer rounds when the limit on bytes written or BenchOptions::stop ends it early. Throws
// Error (kConfig, kInterrupted) when not even one round was completed.
ChecksumComparison compare_checksums(IoBench& bench, const BenchShape& shape, double seconds,
                                     uint32_t rounds);

}  // namespace strata::io
