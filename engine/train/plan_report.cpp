// SPDX-License-Identifier: Apache-2.0
#include "engine/train/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/units.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/external.h"
#include "engine/plan/op_contract.h"
#include "engine/train/plan_purposes.h"
#include "engine/train/step_flops.h"

namespace strata::train {
namespace {

using plan::Arena;
using plan::Lane;

constexpr const char* kArenaNames[plan::kArenaCount] = {"device", "host", "nvme", "control"};

config::Json tier_json(const plan::Plan& plan, Arena arena) {
  config::Json lines = config::Json::object();
  for (const ShownPurpose& one : shown_purposes(plan, arena)) lines.set(one.name, one.bytes);
  config::Json tier = config::Json::object();
  tier.set("bytes", plan.arenas.bytes[static_cast<size_t>(arena)]);
  const int64_t budget = plan.arenas.budget[static_cast<size_t>(arena)];
  if (budget != plan::kNoLimit) tier.set("budget_bytes", budget);
  tier.set("purposes", std::move(lines));
  if (arena == Arena::kHost) tier.set("kept_in_gradients_bytes", plan.arenas.kept_in_gradients);
  return tier;
}

std::string identity_of(const plan::Plan& plan) {
  std::string text =
      fmt::format("{} {} {} {} {}", plan.update().name, plan.mesh.world, plan.shape.tokens(),
                  plan.micro_batches, plan.program(plan::ProgramName::kStep).ops.size());
  for (const plan::LedgerLine& line : plan.arenas.lines) {
    text += fmt::format(" {} {} {}", static_cast<int>(line.arena), line.purpose, line.bytes);
  }
  return text;
}

// Whether the drives do nothing but read frozen weights from the model's own files.
bool reads_files_alone(const plan::SimulationResult& result) {
  return result.reads_files && !result.uses_nvme;
}

}  // namespace

std::vector<BusyPart> parts_of(const plan::SimulationResult& result) {
  std::vector<BusyPart> parts = {{"compute", plan::kComputeWorks},
                                 {reads_files_alone(result) ? "model files" : "NVMe drives",
                                  plan::kDrivesRead | plan::kDrivesWrite},
                                 {"optimizer", plan::kOptimizerWorks},
                                 {"device link", plan::kLinkMoves},
                                 {"collectives", plan::kRanksExchange}};
  for (BusyPart& part : parts) part.seconds = result.any_works_s(part.workers);
  std::stable_sort(parts.begin(), parts.end(),
                   [](const BusyPart& a, const BusyPart& b) { return a.seconds > b.seconds; });
  return parts;
}

std::vector<BusyPart> limits_of(const plan::SimulationResult& result) {
  constexpr double kAlone = 0.9;  // of the step: little is left to wait for
  constexpr double kMuch = 0.8;   // of the longest part
  std::vector<BusyPart> parts = parts_of(result);
  const double longest_s = parts.front().seconds;
  const bool alone = longest_s > kAlone * result.step_s || parts[1].seconds < kMuch * longest_s;
  parts.resize(alone ? 1 : 2);
  return parts;
}

// One direction of the drives is named where the other takes less than a tenth of its time.
std::string bottleneck_of(const plan::SimulationResult& result) {
  const std::vector<BusyPart> limits = limits_of(result);
  const BusyPart& longest = limits.front();
  if (limits.size() > 1) return fmt::format("{} and {}", longest.name, limits[1].name);
  if ((longest.workers & plan::kDrivesRead) == 0) return longest.name;
  if (reads_files_alone(result)) return "reads of the model's files";
  const double read_s = result.any_works_s(plan::kDrivesRead);
  const double write_s = result.any_works_s(plan::kDrivesWrite);
  return write_s < read_s / 10   ? "NVMe reads"
         : read_s < write_s / 10 ? "NVMe writes"
                                 : longest.name;
}

int64_t checkpoint_bytes(const RunPlan& run) {
  const bool staged = run.input.mesh.pipeline > 1;
  return checkpoint::checkpoint_bytes(staged ? *run.spec : run.spec_of(0), run.input.recipe);
}

PlanReport report_of(const RunPlan& run) {
  PlanReport report;
  const plan::Plan& plan = run.ranks.front();
  report.simulated = plan::simulate(plan, plan::ProgramName::kStep, run.rates);
  if (plan.mesh.pipeline > 1) report.simulated.step_s = run.predicted_step_s;
  report.totals = run.totals;
  const auto world = static_cast<int64_t>(run.input.mesh.world);
  report.parameters = static_cast<double>(run.spec->parameter_count());
  for (const model::Segment& segment : run.spec->segments) {
    for (const model::Parameter& parameter : segment.parameters) {
      if (!parameter.frozen) report.trained_parameters += static_cast<double>(parameter.numel);
    }
  }
  report.state_bytes_per_parameter = sizeof(float);  // the gradient
  for (int plane = 0; plane < kPlaneCount; ++plane) {
    report.state_bytes_per_parameter +=
        static_cast<double>(width_of(static_cast<Plane>(plane), plan.recipe));
  }
  report.tokens =
      static_cast<double>(plan.shape.tokens() * plan.micro_batches * run.input.mesh.data_ranks());
  const StepFlops flops = step_flops(run.input, plan);
  if (flops.all > 0) {
    report.recompute_s =
        report.simulated.any_works_s(plan::kComputeWorks) * flops.recomputed / flops.all;
  }
  report.bottleneck = bottleneck_of(report.simulated);
  report.rated_write_bytes =
      run.drives.rated_write_bytes * static_cast<double>(ceil_div(world, run.ranks_on_node));
  const auto steps = static_cast<double>(run.steps - run.done_steps);
  report.run = {.steps = run.steps,
                .left = run.steps - run.done_steps,
                .seconds = steps * report.simulated.step_s,
                .tokens = steps * report.tokens,
                .write_bytes = steps * static_cast<double>(report.totals.write_bytes),
                .checkpoints = std::ceil(steps / steps_per_checkpoint(run))};
  report.checkpoint_bytes = checkpoint_bytes(run);
  if (report.rated_write_bytes > 0) {
    report.run.drive_life = report.run.write_bytes / report.rated_write_bytes;
  }
  report.identity = identity_of(plan);
  return report;
}

config::Json plan_json(const RunPlan& run, const PlanReport& report) {
  const plan::Plan& plan = run.ranks.front();
  config::Json root = config::Json::object();
  root.set("parameters", run.spec->parameter_count());
  root.set("placement", run.placement_name);
  root.set("optimizer_mode", plan.update().name);
  for (Arena arena : {Arena::kDevice, Arena::kHost, Arena::kNvme}) {
    root.set(kArenaNames[static_cast<size_t>(arena)], tier_json(plan, arena));
  }
  // The sizes of tiers are those of one rank; these are of a machine.
  root.set("ranks", int64_t{run.input.mesh.world});
  root.set("tensor_ranks", int64_t{run.input.mesh.tensor});
  root.set("context_ranks", int64_t{run.input.mesh.context});
  if (run.input.mesh.context > 1) {
    root.set("context_exchange", run.input.shape.swaps_heads ? "heads" : "keys");
  }
  if (run.input.device.discrete) {
    root.set("device_exchange", run.input.device.peers ? "direct" : "host");
  }
  root.set("pipeline_ranks", int64_t{run.input.mesh.pipeline});
  root.set("reduce_dtype", name_of(run.input.mesh.reduce_dtype));
  root.set("pipeline_chunks", int64_t{run.input.spec->stage.route.laps});
  root.set("pipeline_windows", int64_t{run.input.windows.count});
  root.set("pipeline_schedule", plan::name_of(run.input.windows.order));
  root.set("ranks_on_machine", run.ranks_on_node);
  root.set("outside_bytes", run.outside_bytes);
  const bool has_limit = run.host_budget != plan::kNoLimit;
  root.set("host_memory_bytes", has_limit ? config::Json(run.host_budget) : config::Json());
  root.set("predicted_step_s", report.simulated.step_s);
  const bool has_tokens = !model::is_external(*run.spec);
  root.set("predicted_tokens_per_s",
           has_tokens ? config::Json(report.tokens_per_s()) : config::Json());
  const double mfu = run.mfu(report.simulated.step_s);
  root.set("predicted_mfu", mfu > 0 ? config::Json(mfu) : config::Json());
  root.set("bottleneck", report.bottleneck);
  root.set("recompute_s", report.recompute_s);
  config::Json busy = config::Json::object();
  for (int lane = 0; lane < plan::kLaneCount; ++lane) {
    busy.set(plan::name_of(static_cast<Lane>(lane)), report.simulated.busy_s[lane]);
  }
  root.set("busy_s", std::move(busy));
  root.set("compute_stall_s", report.simulated.stall.total_s());
  root.set("nvme_read_bytes", report.totals.read_bytes - report.totals.file_bytes);
  root.set("file_read_bytes", report.totals.file_bytes);
  root.set("nvme_write_bytes", report.totals.write_bytes);
  root.set("sent_bytes", report.totals.sent.all());
  root.set("sent_between_machines_bytes", report.totals.sent.between);
  root.set("checkpoint_bytes", report.checkpoint_bytes);
  root.set("state_bytes_per_parameter", report.state_bytes_per_parameter);
  config::Json whole = config::Json::object();
  whole.set("steps", report.run.steps);
  whole.set("steps_left", report.run.left);
  whole.set("seconds", report.run.seconds);
  whole.set("tokens", report.run.tokens);
  whole.set("nvme_write_bytes", report.run.write_bytes);
  whole.set("checkpoints", report.run.checkpoints);
  whole.set("drive_life", report.run.drive_life);
  root.set("run", report.run.steps > 0 ? std::move(whole) : config::Json());
  return root;
}

std::string format_share(double share) {
  if (share < 1e-5) return share > 0 ? "less than 0.001%" : "0%";
  return share >= 0.0995 ? fmt::format("{:.0f}%", 100 * share)
                         : fmt::format("{:#.2g}%", 100 * share);
}

std::string format_drive_bytes(double bytes) {
  constexpr std::array<const char*, 6> kNames = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t index = 0;
  while (bytes >= 999.5 && index + 1 < kNames.size()) {
    bytes /= 1e3;
    ++index;
  }
  const int places = index == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", bytes, places, kNames[index]);
}

}  // namespace strata::train
