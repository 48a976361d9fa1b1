// SPDX-License-Identifier: Apache-2.0
#include "engine/train/run_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/comm/node_memory.h"
#include "engine/exec/devices.h"
#include "engine/exec/rates_of.h"
#include "engine/model_files/transfer_buffer.h"
#include "engine/plan/builder.h"
#include "engine/plan/sent_bytes.h"
#include "engine/plan/window_choice.h"
#include "engine/train/run_plan_parts.h"
#include "engine/train/step_flops.h"
#include "io/scratch_file.h"

namespace strata::train {
int64_t ranks_on_node(const config::Options& options, const RunFacts& facts) {
  return facts.ranks_on_node > 0 ? facts.ranks_on_node : options.ranks;
}

void require_built(const config::Options& options) {
  if (options.optimizer_mode == config::OptimizerMode::kInBackward && options.clip > 0) {
    throw Error(
        ErrorCode::kConfig,
        "optimizer-mode: in-backward: the clip coefficient is known only after backward (add "
        "--clip 0, or use --optimizer-mode deferred)");
  }
}

bool is_beyond_machine(const config::Options& options, const RunFacts& facts) {
  return !facts.elsewhere && options.host_memory > facts.limits.usable_bytes();
}

int64_t host_budget_of(const config::Options& options, const RunFacts& facts) {
  const int64_t usable = facts.limits.usable_bytes();
  if (facts.host_budget > 0) return facts.host_budget;
  if (is_beyond_machine(options, facts)) return usable;
  return options.host_memory > 0
             ? options.host_memory
             : static_cast<int64_t>(kShareOfUsable * static_cast<double>(usable));
}

int64_t ranks_on_device(const config::Options& options, const RunFacts& facts) {
  return options.device_index >= 0 ? ranks_on_node(options, facts) : 1;
}

// An emulated device takes its memory from the host's: by default what --host-memory leaves.
int64_t device_budget_of(const config::Options& options, const RunFacts& facts) {
  if (options.device_memory > 0) return options.device_memory;
  if (options.device == config::Device::kCuda && facts.device_free_bytes > 0) {
    return static_cast<int64_t>(kShareOfDevice * static_cast<double>(facts.device_free_bytes)) /
           ranks_on_device(options, facts);
  }
  if (options.device != config::Device::kEmulated) return plan::kNoLimit;
  const int64_t left = facts.limits.usable_bytes() - host_budget_of(options, facts);
  return std::max<int64_t>(0, left) / ranks_on_node(options, facts);
}

namespace {

// Whether the device's budget is its share of all that the device has.
bool is_whole_device(const config::Options& options, const RunFacts& facts) {
  return facts.device_is_share || (options.device_memory == 0 && facts.device_free_bytes > 0);
}

bool may_use_nvme(const config::Options& options) {
  return options.offload != config::Offload::kNone && options.offload != config::Offload::kHost;
}

plan::PlanInput input_of(const model::ModelSpec& spec, const config::Options& options,
                         const RunFacts& facts, int64_t threads) {
  plan::PlanInput input;
  input.spec = &spec;
  input.recipe = options.recipe;
  input.shape = facts.shape.value_or(shape_of(options));
  input.micro_batches = static_cast<int>(options.accumulate);
  input.device =
      exec::describe(config::kind_of(options.device), options.recipe, static_cast<int>(threads));
  input.mesh = {.world = static_cast<int>(options.ranks),
                .rank = 0,
                .zero_stage = static_cast<int>(options.zero_stage),
                .replicate = static_cast<int>(options.copies()),
                .tensor = static_cast<int>(options.tensor_ranks),
                .pipeline = static_cast<int>(options.pipeline_ranks),
                .context = static_cast<int>(options.context_ranks),
                .node_ranks = static_cast<int>(ranks_on_node(options, facts)),
                .reduce_dtype = options.reduce_dtype};
  input.device.peers = exchanges_directly(options, facts, input.device);
  input.shape.swaps_heads = swaps_heads(options, spec.architecture, input.device);
  input.windows = windows_of(options).front();
  input.inference = facts.inference;
  input.frozen_in_source = may_use_nvme(options);
  if (may_use_nvme(options) && !options.nvme.empty()) {
    input.nvme_budget =
        static_cast<int64_t>(kShareOfFreeSpace * static_cast<double>(facts.nvme_free_bytes)) /
        ranks_on_node(options, facts);
  }
  if (input.device.discrete) input.device_budget = device_budget_of(options, facts);
  return input;
}

}  // namespace

plan::PlannerOptions planner_options(const config::Options& options, const RunFacts& facts) {
  const bool has_no_drives = facts.elsewhere && facts.machine.nvme_mixed_bytes_per_s <= 0;
  plan::PlannerOptions planner;
  planner.prefetch_depth = static_cast<int>(options.prefetch_depth);
  planner.may_keep = options.activations != config::Activations::kRecompute;
  planner.must_keep = options.activations == config::Activations::kKeep;
  planner.must_be_on_device = options.offload == config::Offload::kNone;
  planner.may_use_nvme = may_use_nvme(options) && !has_no_drives;
  planner.avoids_nvme = !may_use_nvme(options) && !has_no_drives;
  planner.device_is_whole = is_whole_device(options, facts);
  planner.host_budget_with = [&](const plan::PlanInput& input) {
    config::Options smaller = options;
    if (!input.shape.is_cached()) {
      smaller.micro_batch = input.shape.rows;
      smaller.sequence_length = input.shape.whole_length();
      smaller.accumulate = input.micro_batches;
    }
    return host_budget_for_arenas(input, smaller, facts);
  };
  return planner;
}

namespace {

// Assumes the rates of an ordinary drive for the model's files, from which frozen weights are read,
// when there is no --nvme that was measured.
void assume_drive_of_files(plan::Rates& rates) {
  constexpr double kBytesPerS = 1e9;
  if (rates.read_bytes_per_s > 0) return;
  rates.read_bytes_per_s = rates.write_bytes_per_s = rates.mixed_bytes_per_s = kBytesPerS;
}

}  // namespace

const plan::Plan& plan_of(const RunPlan& run, int rank) {
  for (const plan::Plan& plan : run.ranks) {
    if (plan.mesh.rank == rank) return plan;
  }
  STRATA_CHECK(false);
  return run.ranks.front();
}

double steps_per_checkpoint(const RunPlan& run) {
  if (run.checkpoint_every > 0) return static_cast<double>(run.checkpoint_every);
  return std::max(1.0, kCheckpointEveryS / run.predicted_step_s);
}

// Drives of different speeds get different shares, and the first full drive limits all of them.
void set_room(const config::Options& options, RunFacts& facts) {
  if (facts.machine.nvme_weights.size() != options.nvme.size()) facts.machine.nvme_weights.clear();
  facts.nvme_free_bytes =
      std::min(facts.nvme_bytes_max, io::free_bytes_of(options.nvme, facts.machine.nvme_weights));
}

// Without a rating in the profile: drives of 1 TB, each rated for one full write a day for 5 years.
Drives drives_of(const config::Options& options, const config::Machine& machine) {
  constexpr double kAssumedWriteBytes = 5 * 365 * 1e12;
  const auto named = static_cast<int64_t>(options.nvme.size());
  const int64_t count = named > 0 && machine.nvme_count > 0 ? machine.nvme_count : named;
  const bool is_assumed = machine.nvme_rated_write_bytes <= 0;
  return {.count = count,
          .rated_write_bytes = is_assumed ? kAssumedWriteBytes * static_cast<double>(count)
                                          : machine.nvme_rated_write_bytes,
          .is_assumed = is_assumed};
}

namespace {

// Far more threads than cores only wait for each other.
void require_cores(const config::Options& options, const RunFacts& facts) {
  constexpr int64_t kThreadsOfCore = 16;
  const int64_t most = kThreadsOfCore * std::max<int64_t>(1, facts.limits.cores);
  if (options.threads <= most) return;
  throw Error(ErrorCode::kConfig,
              fmt::format("--threads {} on {} (give at most {}, or leave it out)", options.threads,
                          counted(facts.limits.cores, "core"), most));
}

// A plan for another machine takes the time and memory of this one, which no budget counts.
void require_few_ops(const plan::PlanInput& input) {
  constexpr int64_t kMostOps = 1 << 22;
  const int64_t ops = ops_of(input);
  if (ops <= kMostOps) return;
  throw Error(ErrorCode::kConfig,
              fmt::format("--accumulate {}: a step would be {} operations, and {} can be planned "
                          "(give a larger --micro-batch and less to --accumulate)",
                          input.micro_batches, ops, kMostOps));
}

// Everything but the plans themselves.
RunPlan prepare(model::ModelSpec spec, const config::Options& options, const RunFacts& facts) {
  require_built(options);
  require_cores(options, facts);
  RunPlan run;
  if (!facts.inference) apply_groups(spec, options);
  run.spec = std::make_unique<model::ModelSpec>(std::move(spec));
  const int64_t cores = options.threads > 0 ? options.threads : facts.limits.cores;
  const int64_t sharing = ranks_on_node(options, facts);
  run.threads = std::max<int64_t>(1, cores / sharing);
  run.ranks_on_node = sharing;
  run.processes = facts.processes;
  run.steps = facts.steps;
  run.done_steps = std::min(facts.done_steps, facts.steps);
  run.checkpoint_every = options.checkpoint_every;
  run.keep_checkpoints = options.keep_checkpoints;
  run.drives = drives_of(options, facts.machine);
  run.input = input_of(*run.spec, options, facts, run.threads);
  require_few_ops(run.input);
  slice(options.least_chunks(), run);
  run.input.spec = &run.spec_of(0);
  run.input.mode = modes_of(options, facts.inference).front();
  run.host_budget = host_budget_of(options, facts);
  run.host_is_share = facts.host_budget > 0 ? facts.host_is_share : options.host_memory == 0;
  run.device_is_share = is_whole_device(options, facts);
  run.outside_bytes = all_outside_bytes(run.input, options, facts);
  run.input.host_budget = host_budget_for_arenas(run.input, options, facts);
  return run;
}

}  // namespace

namespace {

// Throws plan::DoesNotFit; run.input is then of the stage that does not fit.
void require_stages_fit(RunPlan& run, const config::Options& options, const RunFacts& facts) {
  for (int stage = 0; stage < run.input.mesh.pipeline; ++stage) {
    turn_to_stage(stage, run);
    plan::candidates(run.input, planner_options(options, facts));
  }
}

}  // namespace

std::vector<Passes> passes_of(const RunPlan& run, const config::Options& options) {
  std::vector<plan::Windows> windows = {windows_of(options).front()};
  if (options.pipeline_windows == 0) {
    for (const plan::Windows& count : plan::smaller_windows(run.input)) windows.push_back(count);
  }
  std::vector<Passes> all;
  for (const plan::Windows& count : windows) {
    for (plan::OptimizerMode mode : modes_of(options, run.input.inference)) {
      all.push_back({count, mode});
    }
  }
  return all;
}

void set_passes(const Passes& passes, RunPlan& run, const config::Options& options,
                const RunFacts& facts) {
  turn_to_stage(0, run);
  run.input.windows = passes.windows;
  run.input.mode = passes.mode;
  run.outside_bytes = all_outside_bytes(run.input, options, facts);
  run.input.host_budget = host_budget_for_arenas(run.input, options, facts);
}

void require_fit(model::ModelSpec spec, const config::Options& options, const RunFacts& facts) {
  RunPlan run = prepare(std::move(spec), options, facts);
  LeastRefusal refusal;
  for (const Passes& passes : passes_of(run, options)) {
    set_passes(passes, run, options, facts);
    try {
      return require_stages_fit(run, options, facts);
    } catch (const plan::DoesNotFit& why) {
      refusal.add(why, run);
    }
  }
  set_passes({refusal.input.windows, refusal.input.mode}, run, options, facts);
  run.input = refusal.input;
  explain_refusal(run, options, facts, *refusal.why);
}

namespace {

plan::PlanInput input_of_rank(const RunPlan& run, int rank) {
  plan::PlanInput input = run.input;
  input.spec = &run.spec_of(rank);
  input.mesh.rank = rank;
  input.shape.context = input.mesh.context_part();
  return input;
}

// The mean over ranks, from the plan of each stage's first.
double model_flops_of(const RunPlan& run, const std::vector<plan::PlannedRun>& stages) {
  double sum = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    const int first = static_cast<int>(i) * run.input.mesh.stage_ranks();
    sum += step_flops(input_of_rank(run, first), stages[i].plan).of_model();
  }
  return sum / static_cast<double>(stages.size());
}

// Adds a plan that so many ranks have, and what they send.
void add_plan(const plan::Plan& plan, const SentBytes& sent, int64_t ranks, PlanTotals& totals) {
  for (const plan::Op& op : plan.program(plan::ProgramName::kStep).ops) {
    const bool reads = op.lane == plan::Lane::kReadWeights || op.lane == plan::Lane::kReadState;
    if (reads) totals.read_bytes += ranks * op.bytes;
    if (op.lane == plan::Lane::kWrite) totals.write_bytes += ranks * op.bytes;
    if (op.kind == plan::OpKind::kConvert) totals.file_bytes += ranks * op.bytes;
  }
  totals.sent += sent;
  for (size_t arena = 0; arena < totals.arena_bytes.size(); ++arena) {
    totals.arena_bytes[arena] += ranks * plan.arenas.bytes[arena];
  }
}

}  // namespace

RunPlan plan_run(model::ModelSpec spec, const config::Options& options, const RunFacts& facts) {
  RunPlan run = prepare(std::move(spec), options, facts);
  const io::RateLimits limits = {
      .read_bytes_per_s = static_cast<double>(options.nvme_rate.read_bytes_per_s),
      .write_bytes_per_s = static_cast<double>(options.nvme_rate.write_bytes_per_s),
      .half_duplex = true};
  const exec::RateContext context = {
      .recipe = run.input.recipe,
      .limits = limits,
      .threads = static_cast<int>(run.threads),
      .ranks = ranks_on_node(options, facts),
      .nodes = ceil_div(options.ranks, ranks_on_node(options, facts)),
      .processes = facts.processes,
      .device_ranks = ranks_on_device(options, facts),
      .discrete = run.input.device.discrete,
      .peers = run.input.device.peers,
      .compute_flops_per_s = facts.compute_flops_per_s};
  run.rates = exec::rates_of(facts.machine, context);
  run.best_flops_per_s = exec::best_rates_of(facts.machine, context).matmul_flops_per_s;
  if (run.input.frozen_in_source) assume_drive_of_files(run.rates);
  std::vector<plan::PlannedRun> best;
  try {
    best = plan_stages(run, options, facts);
  } catch (const plan::DoesNotFit& why) {
    explain_refusal(run, options, facts, why);
  }
  const plan::PlannedRun& slowest = *std::ranges::max_element(
      best, {}, [](const plan::PlannedRun& stage) { return stage.cost.predicted_s; });
  run.placement_name = slowest.name;
  if (facts.machine.nvme_weights.size() == options.nvme.size()) {
    run.nvme_weights = facts.machine.nvme_weights;
  }
  run.predicted_step_s = cost_of(best, run).predicted_s;
  run.slowest_stage_s = slowest.cost.predicted_s;
  for (const plan::PlannedRun& stage : best) run.candidates += stage.candidates;
  run.model_flops = model_flops_of(run, best);
  for (const plan::PlannedRun& stage : best) {
    run.totals.of_stages.push_back(stage.plan.arenas.bytes);
    if (!facts.only_rank) continue;
    const plan::Mesh& mesh = stage.plan.mesh;
    add_plan(stage.plan,
             plan::sent_by_stage(stage.plan, run.spec_of(mesh.rank), plan::ProgramName::kStep),
             mesh.stage_ranks(), run.totals);
  }
  for (int rank = 0; rank < static_cast<int>(options.ranks); ++rank) {
    if (facts.only_rank && rank != *facts.only_rank) continue;
    const plan::PlanInput input = input_of_rank(run, rank);
    plan::PlannedRun& stage = best[static_cast<size_t>(input.mesh.stage())];
    const bool first = rank % input.mesh.stage_ranks() == 0;
    run.ranks.push_back(first ? std::move(stage.plan) : plan::build_plan(input, stage.placement));
    if (facts.only_rank) continue;
    const plan::Plan& plan = run.ranks.back();
    add_plan(plan, plan::sent_bytes(plan, run.spec_of(rank), plan::ProgramName::kStep), 1,
             run.totals);
  }
  return run;
}

}  // namespace strata::train
