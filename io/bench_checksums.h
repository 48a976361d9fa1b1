// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "io/bench_io.h"
#include "io/bench_statistics.h"

namespace strata::io {

// What checksums cost: the same shape with and without them, turn by turn, and without them once
// more in every round as the control.
struct ChecksumComparison {
  BenchShape shape;
  double with_bytes_per_s = 0;  // medians
  double without_bytes_per_s = 0;
  double with_cpu_s_per_gb = 0;
  double without_cpu_s_per_gb = 0;
  Interval cost_cpu_s_per_gb;  // of the differences, pair by pair
  Interval ratio;              // with / without, of the rates
  Interval control;            // without / without
};
// One round of such a comparison: rates in bytes/s, processor time in s/GB.
struct ChecksumRound {
  double with = 0;
  double without = 0;
  double without_again = 0;  // the control
  double with_cpu = 0;
  double without_cpu = 0;
};
ChecksumComparison comparison_of(const BenchShape& shape, const std::vector<ChecksumRound>& rounds);

// Fewer rounds where the limit on bytes written or BenchOptions::stop ends first; throws Error
// (kConfig, kInterrupted) before the first is whole.
ChecksumComparison compare_checksums(IoBench& bench, const BenchShape& shape, double seconds,
                                     uint32_t rounds);

}  // namespace strata::io
