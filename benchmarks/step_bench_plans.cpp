// SPDX-License-Identifier: Apache-2.0
// Plans alone: how close to the lower bound the planner's choice comes on a machine that is always
// the same.
#include <fmt/format.h>

#include "benchmarks/step_bench_sections.h"
#include "engine/base/units.h"
#include "engine/plan/lower_bound.h"

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

double bound_s(const Bench& bench, const Way& way, const plan::Plan& plan,
               const plan::Rates& rates) {
  std::vector<model::Footprint> footprints;
  for (size_t i = 0; i < bench.spec.segments.size(); ++i) {
    footprints.push_back(
        model::footprint(bench.spec, static_cast<int>(i), way.shape, way.recipe, bench.threads));
  }
  return plan::lower_bound({.spec = bench.spec,
                            .layout = plan.layout,
                            .footprints = footprints,
                            .micro_batches = way.micro_batches,
                            .recipe = way.recipe,
                            .holds_gradients = way.mode == plan::OptimizerMode::kDeferred,
                            .host_bytes = way.host_bytes},
                           rates)
      .step_s;
}

void plans_at(const Context& context, Way way, double rho) {
  const Bench& bench = context.bench;
  Way resident = way;
  resident.nvme = false;
  resident.host_bytes = plan::kNoLimit;
  const double compute_s = flops_of(plan_way(bench, resident, rates_with(1e9)).plan) / kProducts;
  const plan::Rates rates = rates_with(rho * traffic_of_planes(bench, way) / compute_s);
  const plan::PlannedRun planned = plan_way(bench, way, rates);
  const double bound = bound_s(bench, way, planned.plan, rates);
  const double parameters = static_cast<double>(bench.spec.parameter_count());
  const NvmeBytes moved = nvme_bytes_of(planned.plan);
  context.report.note(fmt::format(
      "{} {:>10} {:<11} rho {:<4.4g} bound / simulated {:.3f}   {:.1f}+{:.1f} B/parameter, \"{}\"",
      way.recipe == model::Recipe::kFp32 ? "fp32" : "bf16", format_bytes(way.host_bytes),
      way.mode == plan::OptimizerMode::kDeferred ? "deferred" : "in-backward", rho,
      bound / planned.predicted_s, static_cast<double>(moved.read) / parameters,
      static_cast<double>(moved.written) / parameters, planned.name));
}

}  // namespace

void plans_section(const Context& context) {
  const Settings& settings = context.settings;
  context.report.title(
      "plans alone, simulated: products 150 GFLOP/s, memory 24 GB/s, nothing measured");
  for (const model::Recipe recipe : {model::Recipe::kFp32, model::Recipe::kBf16}) {
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
