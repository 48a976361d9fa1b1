// SPDX-License-Identifier: Apache-2.0
// Plans alone: how close to the lower bound the planner's choice comes on a machine that is always
// the same.
#include <fmt/format.h>

#include "benchmarks/step_bench_sections.h"
#include "engine/base/units.h"

namespace strata::bench {
namespace {

constexpr double kProducts = 150e9;  // operations a second
constexpr double kMemory = 24e9;     // bytes a second

plan::Rates rates_with(double drive_bytes_per_s) {
  plan::Rates rates;
  rates.read_bytes_per_s = rates.write_bytes_per_s = drive_bytes_per_s;
  rates.half_duplex = true;
  rates.matmul_flops_per_s = kProducts;
  rates.memory_bytes_per_s = kMemory;
  return rates;
}

void plans_at(const Context& context, const Way& way, double rho) {
  const Bench& bench = context.bench;
  Way resident = way;
  resident.nvme = false;
  resident.host_bytes = plan::kNoLimit;
  const double compute_s = flops_of(plan_way(bench, resident, rates_with(1e9)).plan) / kProducts;
  const plan::Rates rates = rates_with(rho * traffic_of_planes(bench, way) / compute_s);
  const plan::PlannedRun planned = plan_way(bench, way, rates);
  const double bound = lower_bound_of(bench, way, planned.plan, rates).step_s;
  const double parameters = static_cast<double>(bench.spec.parameter_count());
  const NvmeBytes moved = nvme_bytes_of(planned.plan);
  context.report.note(fmt::format(
      "{} {:>10} {:<11} rho {:<4.4g} bound / simulated {:.3f}   {:.1f}+{:.1f} B/parameter, \"{}\"",
      name_of(way.recipe), format_bytes(way.host_bytes), plan::update_rule(way.mode).name, rho,
      bound / planned.cost.predicted_s, static_cast<double>(moved.read) / parameters,
      static_cast<double>(moved.written) / parameters, planned.name));
}

}  // namespace

void plans_section(const Context& context) {
  const Settings& settings = context.settings;
  context.report.title(
      "plans alone, simulated: products 150 GFLOP/s, memory 24 GB/s, nothing measured");
  for (const Recipe recipe : {Recipe::kFp32, Recipe::kBf16}) {
    for (const int64_t host : {512 * kMiB, settings.host_bytes, 1024 * kMiB}) {
      for (const double rho : {0.5, 1.0, 2.0, 4.0}) {
        Way way;
        way.recipe = recipe;
        way.shape = settings.shape;
        way.micro_batches = settings.micro_batches;
        way.nvme = true;
        way.host_bytes = host;
        way.may_keep = settings.may_keep;
        plans_at(context, way, rho);
      }
    }
  }
}

}  // namespace strata::bench
