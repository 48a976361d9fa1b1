// SPDX-License-Identifier: Apache-2.0
#include "io/bench_checksums.h"

#include "engine/base/check.h"

namespace strata::io {

ChecksumComparison compare_checksums(IoBench& bench, const BenchShape& shape, double seconds,
                                     uint32_t rounds) {
  STRATA_CHECK(rounds > 0);
  std::vector<double> with_rates, without_rates, with_cpu, without_cpu, costs, ratios, controls;
  for (uint32_t round = 0; round < rounds; ++round) {
    // With and without first, by turns: a drift of the machine favours neither.
    const bool with_first = round % 2 == 0;
    BenchResult with;
    if (with_first) with = bench.measure(shape, seconds, true);
    const BenchResult without = bench.measure(shape, seconds, false);
    if (!with_first) with = bench.measure(shape, seconds, true);
    const BenchResult control = bench.measure(shape, seconds, false);
    if (with.empty() || without.empty() || control.empty() || bench.stopped()) break;
    with_rates.push_back(with.bytes_per_s());
    without_rates.push_back(without.bytes_per_s());
    with_cpu.push_back(with.cpu_s_per_gb());
    without_cpu.push_back(without.cpu_s_per_gb());
    costs.push_back(with.cpu_s_per_gb() - without.cpu_s_per_gb());
    ratios.push_back(with.bytes_per_s() / without.bytes_per_s());
    controls.push_back(control.bytes_per_s() / without.bytes_per_s());
  }
  if (ratios.empty()) {
    if (bench.stopped()) throw Error(ErrorCode::kInterrupted, "compare checksums: interrupted");
    throw Error(ErrorCode::kConfig,
                "compare checksums: the limit on bytes written left no whole round (raise it)");
  }
  return {.shape = shape,
          .with_bytes_per_s = median_of(with_rates),
          .without_bytes_per_s = median_of(without_rates),
          .with_cpu_s_per_gb = median_of(with_cpu),
          .without_cpu_s_per_gb = median_of(without_cpu),
          .cost_cpu_s_per_gb = bootstrap_median(costs),
          .ratio = bootstrap_median(ratios),
          .control = bootstrap_median(controls)};
}

}  // namespace strata::io
