// SPDX-License-Identifier: Apache-2.0
#include "engine/train/run_summary.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/plan/op_contract.h"
#include "engine/train/lanes.h"

namespace strata::train {
namespace {

config::Json seconds_by_lane(const std::array<double, plan::kLaneCount>& seconds) {
  config::Json json = config::Json::object();
  for (int lane = 0; lane < plan::kLaneCount; ++lane) {
    json.set(plan::name_of(static_cast<plan::Lane>(lane)), seconds[static_cast<size_t>(lane)]);
  }
  return json;
}

config::Json memory_json(const RunPlan& plan, const TrainResult& result) {
  const RunMemory memory = memory_of(plan, result);
  config::Json json = config::Json::object();
  json.set("arena_bytes", memory.arena_bytes);
  json.set("heap_bytes", memory.process.heap_bytes);
  json.set("stack_bytes", memory.process.stack_bytes);
  json.set("program_bytes", memory.process.file_bytes);
  json.set("counted_bytes", memory.counted_bytes());
  json.set("kernel_peak_bytes", memory.process.resident_peak_bytes);
  json.set("budget_bytes", plan.host_budget);
  return json;
}

config::Json nvme_json(const TrainResult& result) {
  config::Json json = config::Json::object();
  json.set("read_bytes", result.io.bytes_read);
  json.set("verified_bytes", result.io.bytes_verified);
  json.set("written_bytes", result.io.bytes_written);
  json.set("step_read_bytes", result.step_read_bytes);
  json.set("step_write_bytes", result.step_write_bytes);
  json.set("backend", result.io_backend);
  return json;
}

}  // namespace

// The heap is address space, so it counts at most as what is resident beside arenas and stacks. The
// memory of an emulated device is shared memory of this process, which the system counts as files.
RunMemory memory_of(const RunPlan& plan, const TrainResult& result) {
  RunMemory memory = {result.memory};
  const auto bytes_of = [&](plan::Arena arena) {
    return plan.totals.arena_bytes[static_cast<size_t>(arena)];
  };
  memory.arena_bytes = bytes_of(plan::Arena::kHost) + bytes_of(plan::Arena::kControl);
  memory::ProcessMemory& process = memory.process;
  if (plan.input.device.kernels != kernels::KernelSet::kCuda) {
    memory.arena_bytes += bytes_of(plan::Arena::kDevice);
    process.file_bytes -= std::min(process.file_bytes, bytes_of(plan::Arena::kDevice));
  }
  const int64_t beside =
      process.resident_bytes - process.file_bytes - process.stack_bytes - memory.arena_bytes;
  process.heap_bytes = std::min(process.heap_bytes, std::max<int64_t>(0, beside));
  if (result.processes == 1) {
    process.resident_peak_bytes = memory::read_process_memory().resident_peak_bytes;
  }
  return memory;
}

namespace {

int64_t steps_of(const TrainResult& result) {
  return std::max<int64_t>(0, result.last_step - result.first_step + 1);
}

}  // namespace

double tokens_per_s(const config::Options& options, const TrainResult& result) {
  const int64_t samples = (steps_of(result) - result.skipped_steps) * options.step_samples();
  return static_cast<double>(samples * options.sequence_length) / result.train_s;
}

config::Json summary_json(const config::Options& options, const RunPlan& plan,
                          const TrainResult& result, double total_s) {
  const auto measured = [&](double value) {
    return result.tokens > 0 ? config::Json(value) : config::Json();
  };
  config::Json json = config::Json::object();
  json.set("steps", steps_of(result));
  json.set("first_step", result.first_step);
  json.set("last_step", result.last_step);
  json.set("stopped", result.stopped);
  json.set("total_s", total_s);
  json.set("skipped_steps", result.skipped_steps);
  if (scales_loss(options.recipe)) {
    json.set("overflowed_steps", result.overflowed_steps);
    json.set("loss_scale", result.loss_scale);
  }
  json.set("first_loss", measured(result.first_loss));
  json.set("last_loss", measured(result.last_loss));
  json.set("held_out_loss",
           result.held_out_loss ? config::Json(*result.held_out_loss) : config::Json());
  json.set("stopped_early", result.stopped_early);
  config::Json best = config::Json::object();
  best.set("step", result.best_step.value_or(0));
  best.set("held_out_loss",
           std::isnan(result.best_loss) ? config::Json() : config::Json(result.best_loss));
  best.set("checkpoint", best_link(options.out));
  json.set("best", result.best_step ? std::move(best) : config::Json());
  json.set("tokens", result.tokens);
  json.set("tokens_per_s", measured(tokens_per_s(options, result)));
  json.set("tokens_per_s_of_rank",
           measured(tokens_per_s(options, result) / static_cast<double>(options.ranks)));
  const double mfu = plan.mfu(result.median_step_s);
  json.set("mfu", mfu > 0 ? measured(mfu) : config::Json());
  json.set("median_step_s", measured(result.median_step_s));
  json.set("predicted_step_s", plan.predicted_step_s);
  json.set("busy_s", seconds_by_lane(result.busy_s));
  json.set("compute_stall_s", seconds_by_lane(result.stall_s));
  json.set("nvme", nvme_json(result));
  json.set("file_read_bytes", result.file_bytes);
  json.set("step_file_read_bytes", result.step_file_bytes);
  json.set("step_sent_bytes", result.step_sent.all());
  json.set("step_sent_between_machines_bytes", result.step_sent.between);
  json.set("memory", memory_json(plan, result));
  json.set("checkpoint", result.checkpoint);
  json.set("state_hash", fmt::format("{:016x}", result.state_hash));
  return json;
}

config::Json plan_record(const RunPlan& run, const PlanReport& report) {
  config::Json json = plan_json(run, report);
  config::Json drives = config::Json::object();
  drives.set("count", run.drives.count * ceil_div(run.input.mesh.world, run.ranks_on_node));
  drives.set("rated_write_bytes", report.rated_write_bytes);
  drives.set("is_assumed", run.drives.is_assumed);
  json.set("drives", std::move(drives));
  json.set("stall_s", seconds_by_lane(report.simulated.stall.direct_s));
  json.set("lanes", lanes_json(predicted_lanes(run)));
  return json;
}

}  // namespace strata::train
