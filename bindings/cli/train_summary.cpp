// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/train_summary.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/base/units.h"
#include "engine/memory/process_memory.h"
#include "engine/train/metrics_progress.h"

namespace strata::cli {
namespace {

using plan::Lane;

double at(const std::array<double, plan::kLaneCount>& values, Lane lane) {
  return values[static_cast<size_t>(lane)];
}

std::string time_line(const train::TrainResult& result) {
  const auto& stall = result.stall_s;
  const double read = at(stall, Lane::kReadWeights) + at(stall, Lane::kReadState);
  const double link = at(stall, Lane::kUpload) + at(stall, Lane::kDownload);
  return fmt::format(
      "time     {} in steps: compute {:.1f} s; compute waited {:.1f} s for reads, {:.1f} for "
      "writes, "
      "{:.1f} for the optimizer, {:.1f} for the device link, {:.1f} for ranks\n",
      train::format_duration(result.train_s), at(result.busy_s, Lane::kCompute), read,
      at(stall, Lane::kWrite), at(stall, Lane::kOptimizer), link, at(stall, Lane::kComm));
}

// Arenas are present in full from the start; what the kernel has beyond them is everything else.
std::string memory_line(const train::RunPlan& plan) {
  int64_t arenas = 0;
  for (const plan::Plan& rank : plan.ranks) {
    for (plan::Arena arena : {plan::Arena::kDevice, plan::Arena::kHost, plan::Arena::kControl}) {
      arenas += rank.arenas.bytes[static_cast<size_t>(arena)];
    }
  }
  const memory::ProcessMemory memory = memory::read_process_memory();
  const int64_t counted = arenas + memory.heap_bytes + memory.stack_bytes + memory.file_bytes;
  std::string text = fmt::format(
      "memory   {} arenas + {} heap + {} stacks + {} program = {} counted; the kernel's peak is {}",
      format_bytes(arenas), format_bytes(memory.heap_bytes), format_bytes(memory.stack_bytes),
      format_bytes(memory.file_bytes), format_bytes(counted),
      format_bytes(memory.resident_peak_bytes));
  if (memory.cgroup_peak_bytes) {
    text += fmt::format(" (cgroup {})", format_bytes(*memory.cgroup_peak_bytes));
  }
  return text + fmt::format("; budget {}\n", format_bytes(plan.host_budget));
}

// Where the result is, and what to try next.
std::string ending(const config::Options& options, const train::TrainResult& result) {
  const std::string state =
      fmt::format("state    {:016x} in {}\n", result.state_hash, result.checkpoint);
  if (result.stopped) {
    return state + fmt::format("next     strata train ... --out {} --resume\n", options.out);
  }
  return state + fmt::format(
                     "model    {0}/model\nnext     strata generate --model {0}/model "
                     "--prompt \"...\"\n",
                     options.out);
}

}  // namespace

std::string train_summary(const config::Options& options, const train::RunPlan& plan,
                          const train::TrainResult& result, double total_s) {
  const int64_t steps = result.last_step - result.first_step + 1;
  if (steps <= 0) {
    return fmt::format(
               "done     step {} was reached before; nothing was left to do (raise --steps to go "
               "on)\n",
               result.last_step) +
           ending(options, result);
  }
  std::string text = fmt::format("done     {} steps ({} to {}) in {}{}\n", steps, result.first_step,
                                 result.last_step, train::format_duration(total_s),
                                 result.stopped ? ", stopped on request" : "");
  if (steps > 0) {
    text += fmt::format("loss     {:.4f} at first, {:.4f} at last", result.first_loss,
                        result.last_loss);
    if (result.held_out_loss) {
      text += fmt::format("; held out {:.4f}, perplexity {:.2f}", *result.held_out_loss,
                          std::exp(*result.held_out_loss));
    }
    text += '\n' + time_line(result);
    text += fmt::format("step     {:.3f} s median, {:.3f} s predicted ({:.0f}%); {:.0f} tokens/s\n",
                        result.median_step_s, plan.predicted_step_s,
                        100 * plan.predicted_step_s / result.median_step_s,
                        static_cast<double>(result.tokens) / result.train_s);
  }
  const double parameters = static_cast<double>(plan.spec->parameter_count());
  if (result.io.bytes_read + result.io.bytes_written > 0) {
    text += fmt::format(
        "NVMe     {} read (all verified), {} written; a step reads {:.1f} and writes {:.1f} bytes "
        "a "
        "parameter; by {}\n",
        format_bytes(result.io.bytes_read), format_bytes(result.io.bytes_written),
        static_cast<double>(result.step_read_bytes * options.ranks) / parameters,
        static_cast<double>(result.step_write_bytes * options.ranks) / parameters,
        result.io_backend);
  }
  text += memory_line(plan);
  return text + ending(options, result);
}

}  // namespace strata::cli
