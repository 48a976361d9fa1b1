// SPDX-License-Identifier: Apache-2.0
#include "io/bench_checksums.h"

#include "engine/base/check.h"

namespace strata::io {

ChecksumComparison comparison_of(const BenchShape& shape,
                                 const std::vector<ChecksumRound>& rounds) {
  std::vector<double> with, without, with_cpu, without_cpu, costs, ratios, controls;
  for (const ChecksumRound& round : rounds) {
    with.push_back(round.with);
    without.push_back(round.without);
    with_cpu.push_back(round.with_cpu);
    without_cpu.push_back(round.without_cpu);
    costs.push_back(round.with_cpu - round.without_cpu);
    ratios.push_back(round.with / round.without);
    controls.push_back(round.without_again / round.without);
  }
  return {.shape = shape,
          .with_bytes_per_s = median_of(with),
          .without_bytes_per_s = median_of(without),
          .with_cpu_s_per_gb = median_of(with_cpu),
          .without_cpu_s_per_gb = median_of(without_cpu),
          .cost_cpu_s_per_gb = bootstrap_median(costs),
          .ratio = bootstrap_median(ratios),
          .control = bootstrap_median(controls)};
}

ChecksumComparison compare_checksums(IoBench& bench, const BenchShape& shape, double seconds,
                                     uint32_t rounds) {
  STRATA_CHECK(rounds > 0);
  std::vector<ChecksumRound> done;
  for (uint32_t round = 0; round < rounds; ++round) {
    // The order alternates, so that a drift of the machine favours neither.
    const bool with_first = round % 2 == 0;
    BenchResult with;
    if (with_first) with = bench.measure(shape, seconds, true);
    const BenchResult without = bench.measure(shape, seconds, false);
    if (!with_first) with = bench.measure(shape, seconds, true);
    const BenchResult control = bench.measure(shape, seconds, false);
    if (with.empty() || without.empty() || control.empty() || bench.stopped()) break;
    done.push_back({.with = with.bytes_per_s(),
                    .without = without.bytes_per_s(),
                    .without_again = control.bytes_per_s(),
                    .with_cpu = with.cpu_s_per_gb(),
                    .without_cpu = without.cpu_s_per_gb()});
  }
  if (done.empty()) {
    if (bench.stopped()) throw Error(ErrorCode::kInterrupted, "compare checksums: interrupted");
    throw Error(
        ErrorCode::kConfig,
        "compare checksums: the limit on bytes written ends the first round (raise --write-limit)");
  }
  return comparison_of(shape, done);
}

}  // namespace strata::io
