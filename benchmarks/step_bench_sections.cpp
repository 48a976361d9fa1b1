// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/step_bench_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "benchmarks/step_bench_kernels.h"
#include "engine/base/units.h"
#include "engine/exec/compute_probe.h"
#include "engine/exec/rates_of.h"

namespace strata::bench {
namespace {

constexpr double kProductsSeconds = 0.3;
constexpr double kLongProductsSeconds = 5;

std::string name_of(const model::BatchShape& shape, int micro_batches = 1) {
  const std::string one = fmt::format("{}x{}", shape.rows, shape.length);
  return micro_batches == 1 ? one : fmt::format("{} x {}", micro_batches, one);
}

double parameters(const Context& context) {
  return static_cast<double>(context.bench.spec.parameter_count());
}

Way way_of(const Context& context, const model::BatchShape& shape, int micro_batches) {
  Way way;
  way.recipe = context.settings.recipe;
  way.shape = shape;
  way.micro_batches = micro_batches;
  way.may_keep = context.settings.may_keep;
  return way;
}

// What the planner and the prediction go by: this model's own rate of arithmetic, measured now.
plan::Rates rates_for(const Context& context, const Way& way) {
  exec::RateContext rates;
  rates.recipe = way.recipe;
  rates.limits = way.limits;
  rates.threads = context.bench.threads;
  const auto host = kernels::make_host_device(kernels::cpu_backend(), context.bench.threads);
  rates.compute_flops_per_s = exec::probe_compute(
      {.spec = context.bench.spec, .recipe = way.recipe, .shape = way.shape, .device = *host});
  return exec::rates_of(context.machine, rates);
}

plan::LowerBound bound_of(const Context& context, const Way& way, const plan::Plan& plan,
                          double products) {
  exec::RateContext rate_context;
  rate_context.recipe = way.recipe;
  rate_context.limits = way.limits;
  rate_context.threads = context.bench.threads;
  plan::Rates rates = exec::best_rates_of(context.machine, rate_context);
  rates.matmul_flops_per_s = products;
  return lower_bound_of(context.bench, way, plan, rates);
}

double products_rate(const Context& context, Recipe recipe, bool processor_time = false,
                     double seconds = kProductsSeconds) {
  const DType dtype = weight_dtype(recipe);
  exec::ProbeOptions probe = context.probe;
  probe.processor_time = processor_time;
  return exec::probe_products(probe, dtype, seconds);
}

}  // namespace

// --- everything in memory ---

namespace {

void resident_shape(const Context& context, const model::BatchShape& shape, double torch_goal) {
  Way way = way_of(context, shape, 1);
  way.may_keep = false;  // as the yardstick with checkpoints
  Run run(context.bench, way, rates_for(context, way));
  const double flops = flops_of(run.plan());
  const double tokens = static_cast<double>(shape.tokens());
  std::vector<double> seconds, fractions, processor_fractions, ratios, torch_seconds;
  run.forward_backward();
  clear_kernel_times();
  for (int round = 0; round < context.settings.rounds; ++round) {
    const double before = products_rate(context, way.recipe);
    const double processor_rate = products_rate(context, way.recipe, true);
    const Run::Seconds step = run.forward_backward();
    const double step_s = step.clock_s;
    const double after = products_rate(context, way.recipe);
    seconds.push_back(step_s);
    fractions.push_back(flops / step_s / (0.5 * (before + after)));
    processor_fractions.push_back(flops / step.processor_s / processor_rate);
    if (!context.settings.torch) continue;
    torch_seconds.push_back(torch_forward_backward_s(context.settings.torch,
                                                     context.bench.spec.architecture, shape, 3));
    ratios.push_back(torch_seconds.back() / step_s);
  }
  const std::string name = name_of(shape);
  std::vector<double> rate, true_rate;
  for (const double one : seconds) {
    rate.push_back(8 * parameters(context) * tokens / one / 1e9);
    true_rate.push_back(flops / one / 1e9);
  }
  Report& report = context.report;
  report.add({"resident", name + " forward+backward, recomputing", "s", seconds});
  report.add({"resident", name + " at 8 operations a parameter and token", "GFLOP/s", rate});
  report.add(
      {"resident", name + " operations of the products and attention", "GFLOP/s", true_rate});
  report.add({"resident", name + " of the large products' rate", "", fractions, 0.85});
  report.add({"resident", name + " the same by processor time", "", processor_fractions});
  if (!ratios.empty()) {
    report.add({"resident", name + " PyTorch eager with the same recompute", "s", torch_seconds});
    report.add({"resident", name + " PyTorch / ours", "", ratios, torch_goal});
  }
  if (!context.settings.profile) return;
  print_profile(run);
  print_kernel_times(context.settings.rounds);
}

}  // namespace

void resident_section(const Context& context) {
  context.report.title(fmt::format("everything in memory, {}", name_of(context.settings.recipe)));
  for (const model::BatchShape& shape : context.settings.shapes) {
    resident_shape(context, shape, shape.tokens() <= 256 ? 1.3 : 1.1);
  }
}

// --- state on NVMe ---

namespace {

// The model's rate of arithmetic and the machine's others under the limits of a way.
plan::Rates limited_rates(const Context& context, const Way& way, double compute_rate) {
  exec::RateContext rates;
  rates.recipe = way.recipe;
  rates.limits = way.limits;
  rates.threads = context.bench.threads;
  rates.compute_flops_per_s = compute_rate;
  return exec::rates_of(context.machine, rates);
}

// The most that the drive itself gives with room to spare, so that a limit below is what limits.
double fastest_limit(const Context& context) {
  const config::Machine& machine = context.machine;
  return 0.8 * std::min(machine.nvme_read_bytes_per_s, machine.nvme_write_bytes_per_s);
}

double forward_backward_s(const Context& context, Run& run) {
  std::vector<double> seconds;
  for (int round = 0; round < context.settings.rounds; ++round) {
    seconds.push_back(run.forward_backward().clock_s);
  }
  return median(seconds);
}

// Forward and backward with everything in memory and activations kept.
struct Resident {
  double compute_s = 0;
  double flops = 0;
};

// With so many micro-batches that the drive can be the slower one.
Resident resident_at(const Context& context, Way& way, double rho) {
  for (int attempt = 0;; ++attempt) {
    Run run(context.bench, way, rates_for(context, way));
    const Resident resident = {forward_backward_s(context, run), flops_of(run.plan())};
    const double rate = rho * traffic_of_planes(context.bench, way) / resident.compute_s;
    if (rate <= fastest_limit(context) || attempt == 2) return resident;
    way.micro_batches =
        static_cast<int>(std::ceil(1.05 * way.micro_batches * rate / fastest_limit(context)));
  }
}

struct OffloadSamples {
  std::vector<double> resident_s, offloaded_s, against_resident, against_bound, prediction;
  std::vector<double> products;  // GFLOP/s, the mean of before, between and after
  plan::LowerBound bound;
};

OffloadSamples compare(const Context& context, Run& resident, Run& run, const Way& way) {
  OffloadSamples samples;
  // Products run for a tenth of a step: a processor is faster in a short time than in a long one.
  const double roof_s =
      std::clamp(0.1 * run.planned().cost.predicted_s, kProductsSeconds, kLongProductsSeconds);
  const auto products = [&] { return products_rate(context, way.recipe, false, roof_s); };
  for (int round = 0; round < context.settings.rounds; ++round) {
    const double before = products();
    const double resident_s = median(resident.burst(context.settings.steps));
    const double between = products();
    const double step_s = median(run.burst(context.settings.steps));
    const double after = products();
    const double roof = 0.25 * (before + 2 * between + after);
    samples.products.push_back(roof / 1e9);
    samples.bound = bound_of(context, way, run.plan(), roof);
    samples.resident_s.push_back(resident_s);
    samples.offloaded_s.push_back(step_s);
    samples.against_resident.push_back(resident_s / step_s);
    samples.against_bound.push_back(samples.bound.step_s / step_s);
    samples.prediction.push_back(run.planned().cost.predicted_s / step_s);
  }
  return samples;
}

void offload_at(const Context& context, const model::BatchShape& shape, double rho) {
  Way way = way_of(context, shape, context.settings.micro_batches);
  const Resident resident = resident_at(context, way, rho);
  const double compute_s = resident.compute_s;
  const std::string name = fmt::format("rho {:.4g}, {}", rho, name_of(shape, way.micro_batches));
  way.nvme = true;
  way.host_bytes = context.settings.host_bytes;
  const double rate = rho * traffic_of_planes(context.bench, way) / compute_s;
  way.limits = {.read_bytes_per_s = rate, .write_bytes_per_s = rate, .half_duplex = true};
  plan::PlannedRun planned =
      plan_way(context.bench, way, limited_rates(context, way, resident.flops / compute_s));
  Report& report = context.report;
  Run same(context.bench, way, in_memory(context.bench, way, planned));
  Run run(context.bench, way, std::move(planned));
  const NvmeBytes bytes = nvme_bytes_of(run.plan());
  const OffloadSamples samples = compare(context, same, run, way);
  report.note(fmt::format(
      "{}: {:.0f} MB/s in turns, I/O {:.2f} s, \"{}\", {:.1f}+{:.1f} B/parameter, bound by {}",
      name, way.limits.read_bytes_per_s / 1e6,
      static_cast<double>(bytes.read + bytes.written) / way.limits.read_bytes_per_s,
      run.planned().name, static_cast<double>(bytes.read) / parameters(context),
      static_cast<double>(bytes.written) / parameters(context),
      plan::name_of(samples.bound.binding)));
  const double bound_goal = rho == 1 ? 0.62 : rho == 2 ? 0.82 : 0;
  report.add({"offload", name + " resident forward+backward", "s", {compute_s}});
  report.add({"offload", name + " resident step, keeping the same", "s", samples.resident_s});
  report.add({"offload", name + " offloaded step", "s", samples.offloaded_s});
  report.add({"offload", name + " resident / offloaded", "", samples.against_resident,
              rho >= 4 ? 0.95 : 0});
  report.add({"offload", name + " lower bound / measured", "", samples.against_bound, bound_goal});
  report.add({"offload", name + " products beside it", "GFLOP/s", samples.products});
  report.add({"offload", name + " predicted / measured", "", samples.prediction});
  if (!context.settings.profile) return;
  report.note("the resident step, then the offloaded one:");
  print_profile(same);
  print_profile(run);
}

}  // namespace

void offload_section(const Context& context) {
  const Settings& settings = context.settings;
  context.report.title(fmt::format("state on NVMe, --host-memory {}, {}, clipping on",
                                   format_bytes(settings.host_bytes), name_of(settings.recipe)));
  for (const double rho : settings.rho) offload_at(context, settings.shape, rho);
}

// --- parts ---

void optimizer_section(const Context& context) {
  context.report.title("fused AdamW against memory");
  exec::ProbeOptions probe = context.probe;
  std::vector<double> update, memory, fraction;
  for (int round = 0; round < std::max(3, context.settings.rounds); ++round) {
    memory.push_back(exec::probe_memory(probe, 0.4) / 1e9);
    update.push_back(exec::probe_optimizer(probe, 0.4) / 1e9);
    fraction.push_back(update.back() / memory.back());
  }
  context.report.add({"optimizer", "memory bandwidth (triad)", "GB/s", memory});
  context.report.add({"optimizer", "fused AdamW", "GB/s", update});
  context.report.add({"optimizer", "AdamW / memory", "", fraction, 0.85});
}

void bytes_section(const Context& context) {
  context.report.title("NVMe bytes of a parameter and step, counted by the executor");
  for (const Recipe recipe : {Recipe::kBf16, Recipe::kFp32}) {
    for (const bool smallest : {false, true}) {
      Way way = way_of(context, {1, 64}, 1);
      way.recipe = recipe;
      way.nvme = true;
      way.host_bytes = context.settings.host_bytes;
      const plan::Rates rates = exec::rates_of(context.machine, {.recipe = recipe});
      if (smallest) {
        plan::PlanInput input;
        input.spec = &context.bench.spec;
        input.recipe = recipe;
        input.shape = way.shape;
        input.device.threads = context.bench.threads;
        input.io_depth = context.bench.io_depth;
        input.nvme_budget = int64_t{1} << 42;
        way.host_bytes = plan::bytes_of(
            input, plan::smallest_placement(input))[static_cast<size_t>(plan::Arena::kHost)];
      }
      Run run(context.bench, way, rates);
      run.burst(4);
      const NvmeBytes counted = nvme_bytes_of(run.steady());
      const NvmeBytes planned = nvme_bytes_of(run.plan());
      const double p = parameters(context);
      const double total = static_cast<double>(counted.read + counted.written) / p;
      const double gradients = 2 * static_cast<double>(planned.spilled_gradients) / p;
      const std::string name = fmt::format("{}, {}", name_of(recipe), format_bytes(way.host_bytes));
      context.report.note(fmt::format(
          "{}: read {:.2f}, written {:.2f}, of it spilled gradients {:.2f}; the plan's: {:.2f}, "
          "{:.2f}",
          name, static_cast<double>(counted.read) / p, static_cast<double>(counted.written) / p,
          gradients, static_cast<double>(planned.read) / p,
          static_cast<double>(planned.written) / p));
      const double limit_bytes = (recipe == Recipe::kBf16 ? 26.0 : 28.0) + gradients;
      context.report.add({"bytes", name + " read and written", "B", {total}, 0, limit_bytes});
      const bool equal = counted.read == planned.read && counted.written == planned.written;
      context.report.add({"bytes", name + " equal to the plan's", "", {equal ? 1.0 : 0.0}, 1});
    }
  }
}

// --- prediction ---

void prediction_section(const Context& context) {
  context.report.title(
      "predicted against measured, ten configurations on this machine's own drive");
  struct Case {
    Recipe recipe;
    model::BatchShape shape;
    int micro_batches;
    int64_t host_bytes;
    bool nvme;
    double clip;
  };
  constexpr auto kFp32 = Recipe::kFp32;
  constexpr auto kBf16 = Recipe::kBf16;
  const Case cases[] = {
      {kFp32, {1, 64}, 1, plan::kNoLimit, false, 1}, {kBf16, {1, 64}, 1, plan::kNoLimit, false, 1},
      {kFp32, {1, 128}, 2, 768 * kMiB, true, 1},     {kBf16, {1, 128}, 2, 768 * kMiB, true, 1},
      {kFp32, {1, 64}, 1, 512 * kMiB, true, 1},      {kBf16, {1, 64}, 1, 512 * kMiB, true, 1},
      {kFp32, {1, 128}, 1, 1024 * kMiB, true, 1},    {kBf16, {1, 256}, 1, 640 * kMiB, true, 1},
      {kFp32, {1, 64}, 2, 640 * kMiB, true, 0},      {kBf16, {1, 64}, 2, 512 * kMiB, true, 0}};
  std::vector<double> errors;
  for (const Case& one : cases) {
    Way way = way_of(context, one.shape, one.micro_batches);
    way.recipe = one.recipe;
    way.nvme = one.nvme;
    way.host_bytes = one.host_bytes;
    way.clip = one.clip;
    if (one.clip == 0) way.mode = plan::OptimizerMode::kInBackward;
    Run run(context.bench, way, rates_for(context, way));
    std::vector<double> ratios;
    for (int round = 0; round < context.settings.rounds; ++round) {
      ratios.push_back(run.planned().cost.predicted_s / median(run.burst(context.settings.steps)));
    }
    errors.push_back(std::abs(median(ratios) - 1));
    const std::string budget = one.nvme ? format_bytes(one.host_bytes) : "in memory";
    context.report.add(
        {"prediction",
         fmt::format("{} {} {}{}", name_of(one.recipe), name_of(one.shape, one.micro_batches),
                     budget, one.clip == 0 ? " in-backward" : ""),
         "", ratios});
  }
  context.report.add({"prediction", "error, median of the configurations", "", errors, 0, 0.15});
}

// --- DeepSpeed ---

void deepspeed_section(const Context& context) {
  const Settings& settings = context.settings;
  context.report.title("DeepSpeed ZeRO-3 with NVMe, fp32; ours with a quarter of its peak memory");
  struct Case {
    model::BatchShape shape;
    int micro_batches;
    double goal;
  };
  for (const Case& one : {Case{{1, 128}, 4, 2.5}, Case{{2, 512}, 1, 1.2}}) {
    Way way = way_of(context, one.shape, one.micro_batches);
    way.recipe = Recipe::kFp32;
    way.nvme = true;
    const auto theirs = [&] {
      return deepspeed_step(settings.deepspeed, context.bench.directory,
                            context.bench.spec.architecture, one.shape, one.micro_batches, 4);
    };
    DeepSpeedResult result = theirs();
    way.host_bytes = static_cast<int64_t>(result.peak_bytes / 4) / kPageBytes * kPageBytes;
    std::vector<double> ours_s, theirs_s, ratios;
    Run run(context.bench, way, rates_for(context, way));
    for (int round = 0; round < settings.rounds; ++round) {
      if (round > 0) result = theirs();
      theirs_s.push_back(result.step_s);
      ours_s.push_back(median(run.burst(settings.steps)));
      ratios.push_back(theirs_s.back() / ours_s.back());
    }
    const std::string name = name_of(one.shape, one.micro_batches);
    context.report.note(fmt::format("{}: DeepSpeed's peak {:.2f} GB; ours has {}, \"{}\"", name,
                                    result.peak_bytes / 1e9, format_bytes(way.host_bytes),
                                    run.planned().name));
    context.report.add({"deepspeed", name + " DeepSpeed step", "s", theirs_s});
    context.report.add({"deepspeed", name + " our step", "s", ours_s});
    context.report.add({"deepspeed", name + " DeepSpeed / ours", "", ratios, one.goal});
  }
}

}  // namespace strata::bench
