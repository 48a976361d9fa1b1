// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/step_bench_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "benchmarks/step_bench_kernels.h"
#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/exec/drive_probe.h"
#include "engine/plan/builder.h"
#include "engine/plan/op_contract.h"
#include "engine/plan/window_choice.h"

namespace strata::bench {
namespace {

using plan::Lane;
using plan::OpKind;

constexpr size_t at(Lane lane) {
  return static_cast<size_t>(lane);
}

uint64_t mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// Ones for vectors and numbers around zero for matrices, as a model has them before training.
class RandomState : public exec::StateSource {
 public:
  explicit RandomState(const model::ModelSpec& spec) : spec_(spec) {}

  void read(const exec::ChunkState& chunk) override {
    exec::fill_chunk(chunk, [&](int64_t element) { return value(chunk.segment, element); });
  }

 private:
  float value(int segment, int64_t element) const {
    for (const model::Parameter& parameter :
         spec_.segments[static_cast<size_t>(segment)].parameters) {
      const int64_t index = element - parameter.offset;
      if (index < 0 || index >= parameter.numel) continue;
      if (parameter.shape.size() < 2) return 1.0f;
      const uint64_t bits =
          mixed(static_cast<uint64_t>(segment) << 40 ^ static_cast<uint64_t>(element));
      return (static_cast<float>(bits >> 40) * 0x1p-24f - 0.5f) * 0.07f;  // deviation 0.02
    }
    return 0.0f;
  }

  const model::ModelSpec& spec_;
};

plan::PlanInput input_of(const Bench& bench, const Way& way) {
  plan::PlanInput input;
  input.spec = &bench.spec;
  input.recipe = way.recipe;
  input.shape = way.shape;
  input.micro_batches = way.micro_batches;
  input.mode = way.mode;
  input.device.threads = bench.threads;
  input.io_depth = bench.io_depth;
  input.host_budget = way.host_bytes;
  input.nvme_budget = way.nvme ? int64_t{1} << 42 : 0;
  return input;
}

bool is_io(Lane lane) {
  return !plan::is_serial(lane);
}

}  // namespace

plan::PlannedRun plan_way(const Bench& bench, const Way& way, const plan::Rates& rates) {
  plan::PlannerOptions options;
  options.may_keep = way.may_keep;
  options.predict = [&](const plan::Plan& plan) {
    return plan::simulate(plan, plan::ProgramName::kStep, rates).step_s;
  };
  plan::PlanInput input = input_of(bench, way);
  const std::vector<plan::Windows> smaller = plan::smaller_windows(input);
  if (!smaller.empty() && !plan::fits(input, options)) {
    input.windows = smaller.front();
    return plan::make_plan(input, options);
  }
  plan::PlannedRun best = plan::make_plan(input, options);
  for (const plan::Windows& windows : plan::faster_windows(input, rates, best.cost.predicted_s)) {
    input.windows = windows;
    plan::PlannedRun other = plan::make_plan(input, options);
    if (plan::is_better(other.cost, best.cost)) best = std::move(other);
  }
  return best;
}

plan::PlannedRun in_memory(const Bench& bench, Way way, const plan::PlannedRun& like) {
  way.host_bytes = plan::kNoLimit;
  plan::PlanInput input = input_of(bench, way);
  input.windows = like.plan.windows;
  plan::Placement placement = like.placement;
  for (auto* flags : {&placement.hi_in_host, &placement.state_in_host, &placement.grad_in_host,
                      &placement.checkpoint_in_host}) {
    std::fill(flags->begin(), flags->end(), 1);
  }
  plan::PlannedRun planned;
  planned.plan = plan::build_plan(input, placement);
  planned.placement = std::move(placement);
  planned.name = "in memory";
  return planned;
}

Run::Run(const Bench& bench, const Way& way, const plan::Rates& rates)
    : Run(bench, way, plan_way(bench, way, rates)) {}

Run::Run(const Bench& bench, const Way& way, plan::PlannedRun planned)
    : bench_(bench), way_(way), planned_(std::move(planned)) {
  exec::ExecutorOptions options;
  options.backend = bench.time_kernels ? &timed_backend() : &kernels::cpu_backend();
  options.threads = bench.threads;
  options.volume.directories = {bench.directory};
  options.volume.allow_memory_filesystem = bench.allow_memory_filesystem;
  options.volume.owner = "step_bench";
  options.rates = way.limits;
  executor_ = std::make_unique<exec::Executor>(planned_.plan, bench.spec, options);
  RandomState source(bench.spec);
  run_program(plan::ProgramName::kLoad, &source);
}

Run::~Run() = default;

void Run::run_program(plan::ProgramName name, exec::StateSource* source) {
  exec::Instance instance;
  instance.program = name;
  instance.source = source;
  executor_->run(instance);
}

std::unique_ptr<exec::Instance> Run::step() {
  auto instance = std::make_unique<exec::Instance>();
  ++steps_;
  instance->settings = {.lr = 1e-5, .clip = way_.clip};
  instance->record_times = true;
  const auto count = static_cast<size_t>(way_.shape.tokens() * way_.micro_batches);
  const auto vocabulary = static_cast<uint64_t>(bench_.spec.architecture.vocabulary);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = mixed(static_cast<uint64_t>(steps_) << 32 ^ i);
    instance->tokens.push_back(static_cast<int32_t>(bits % vocabulary));
    instance->targets.push_back(static_cast<int32_t>((bits >> 32) % vocabulary));
  }
  instance->target_count = static_cast<int64_t>(count);
  return instance;
}

std::vector<double> Run::burst(int steps) {
  STRATA_CHECK(steps >= 3);
  std::vector<std::unique_ptr<exec::Instance>> instances;
  std::vector<double> ends;
  for (int i = 0; i < steps; ++i) {
    instances.push_back(step());
    executor_->submit(*instances.back());
    if (i == 0) continue;
    executor_->wait(*instances[static_cast<size_t>(i - 1)]);
    ends.push_back(now_s());
  }
  executor_->wait(*instances.back());
  std::vector<double> seconds;
  for (size_t i = 1; i < ends.size(); ++i) seconds.push_back(ends[i] - ends[i - 1]);
  steady_ = std::move(instances[instances.size() - 2]);
  return seconds;
}

Run::Seconds Run::forward_backward() {
  auto instance = step();
  const double begin_s = exec::process_cpu_s();
  executor_->run(*instance);
  const double processor_s = (exec::process_cpu_s() - begin_s) / bench_.threads;
  const auto& times = instance->times[at(Lane::kCompute)];
  run_program(plan::ProgramName::kDrain, nullptr);
  const double clock_s = times.back().end_s - times.front().begin_s;
  steady_ = std::move(instance);
  return {clock_s, processor_s};
}

plan::LowerBound lower_bound_of(const Bench& bench, const Way& way, const plan::Plan& plan,
                                const plan::Rates& rates) {
  std::vector<model::Footprint> footprints;
  for (size_t i = 0; i < bench.spec.segments.size(); ++i) {
    footprints.push_back(model::footprint(bench.spec, static_cast<int>(i), way.shape, way.recipe,
                                          {.threads = bench.threads}));
  }
  return plan::lower_bound(
      {.spec = bench.spec,
       .layout = plan.layout,
       .footprints = footprints,
       .micro_batches = way.micro_batches,
       .boundary_bytes = model::boundary_bytes(bench.spec, way.shape, way.recipe),
       .recipe = way.recipe,
       .holds_gradients = plan::update_rule(way.mode).waits,
       .host_bytes = way.host_bytes},
      rates);
}

double flops_of(const plan::Plan& plan) {
  double flops = 0;
  for (const plan::Op& op : plan.program(plan::ProgramName::kStep).ops) flops += op.flops;
  return flops;
}

NvmeBytes nvme_bytes_of(const plan::Plan& plan) {
  const plan::Program& program = plan.program(plan::ProgramName::kStep);
  NvmeBytes bytes;
  for (const plan::Op& op : program.ops) {
    if (!is_io(op.lane)) continue;
    (op.lane == Lane::kWrite ? bytes.written : bytes.read) += op.bytes;
    if (op.lane != Lane::kWrite) continue;
    for (const plan::Access& access : program.accesses_of(op)) {
      const bool gradient = access.value.kind == plan::ValueKind::kGradient;
      if (gradient && access.mode == plan::Mode::kRead) bytes.spilled_gradients += access.bytes;
    }
  }
  return bytes;
}

NvmeBytes nvme_bytes_of(const exec::Instance& instance) {
  return {.read = instance.nvme_bytes[at(Lane::kReadWeights)] +
                  instance.nvme_bytes[at(Lane::kReadState)],
          .written = instance.nvme_bytes[at(Lane::kWrite)]};
}

double traffic_of_planes(const Bench& bench, const Way& way) {
  plan::PlanInput input = input_of(bench, way);
  input.host_budget = plan::kNoLimit;
  input.nvme_budget = int64_t{1} << 42;
  plan::Placement placement = plan::smallest_placement(input);
  std::fill(placement.grad_in_host.begin(), placement.grad_in_host.end(), 1);
  std::fill(placement.checkpoint_in_host.begin(), placement.checkpoint_in_host.end(), 1);
  const NvmeBytes bytes = nvme_bytes_of(plan::build_plan(input, placement));
  return 0.9 * static_cast<double>(bytes.read + bytes.written);
}

// --- profile ---

namespace {

const char* name_of(model::SegmentKind kind) {
  constexpr const char* kNames[] = {"embedding", "attention", "mlp", "head",
                                    "external",  "received",  "sent"};
  return kNames[static_cast<size_t>(kind)];
}

struct Sum {
  int count = 0;
  double seconds = 0;
  double flops = 0;
  double bytes = 0;
};

}  // namespace

void print_profile(const Run& run) {
  const exec::Instance& step = run.steady();
  const plan::Program& program = run.plan().program(plan::ProgramName::kStep);
  fmt::print("    {:<12} {:<10} {:<10} {:>6} {:>9} {:>9} {:>8}\n", "lane", "op", "segment", "ops",
             "seconds", "GFLOP/s", "GB/s");
  for (int lane = 0; lane < plan::kLaneCount; ++lane) {
    std::map<std::pair<OpKind, int>, Sum> sums;
    for (const exec::MeasuredTime& time : step.times[static_cast<size_t>(lane)]) {
      const plan::Op& op = program.ops[time.op];
      const int kind = lane == 0 ? static_cast<int>(run.kind_of(op.segment)) : -1;
      Sum& sum = sums[{op.kind, kind}];
      ++sum.count;
      sum.seconds += time.end_s - time.begin_s;
      sum.flops += op.flops;
      sum.bytes += static_cast<double>(op.bytes);
    }
    for (const auto& [key, sum] : sums) {
      fmt::print("    {:<12} {:<10} {:<10} {:>6} {:>9.4f} {:>9.1f} {:>8.2f}\n",
                 plan::name_of(static_cast<Lane>(lane)), plan::contract_of(key.first).name,
                 key.second < 0 ? "" : name_of(static_cast<model::SegmentKind>(key.second)),
                 sum.count, sum.seconds, sum.flops / sum.seconds / 1e9,
                 sum.bytes / sum.seconds / 1e9);
    }
    if (step.stall_s[static_cast<size_t>(lane)] > 0) {
      fmt::print("    compute waited for {:<12} {:>9.4f}\n", plan::name_of(static_cast<Lane>(lane)),
                 step.stall_s[static_cast<size_t>(lane)]);
    }
  }
  const auto& computed = step.times[at(Lane::kCompute)];
  const double span_s = computed.back().end_s - computed.front().begin_s;
  fmt::print("    compute busy {:.4f} of {:.4f} s\n", step.busy_s[at(Lane::kCompute)], span_s);
  std::fflush(stdout);
}

}  // namespace strata::bench
