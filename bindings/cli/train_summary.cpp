// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/train_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/shell_word.h"
#include "engine/base/units.h"
#include "engine/memory/process_memory.h"
#include "engine/plan/op_contract.h"
#include "engine/text/tokenizer.h"
#include "engine/train/metrics_progress.h"
#include "io/rate_limiter.h"

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
      "time     {} in steps: compute {}; compute waited {} for reads, {} for writes, {} for the "
      "optimizer, {} for the device link, {} for ranks\n",
      format_duration(result.train_s), format_duration(at(result.busy_s, Lane::kCompute)),
      format_duration(read), format_duration(at(stall, Lane::kWrite)),
      format_duration(at(stall, Lane::kOptimizer) + at(stall, Lane::kUpdate)),
      format_duration(link), format_duration(at(stall, Lane::kComm)));
}

// Arenas are resident in full from the start; the rest is counted after the last step. The heap is
// address space, so it counts at most as what is resident beside arenas and stacks.
struct Memory {
  memory::ProcessMemory process;
  int64_t arena_bytes = 0;  // an emulated device's memory is host memory to the kernel
  int64_t counted_bytes() const { return process.counted_bytes(arena_bytes); }
};

Memory memory_of(const train::RunPlan& plan, const train::TrainResult& result) {
  Memory memory = {result.memory};
  for (const plan::Plan& rank : plan.ranks) {
    for (const plan::Arena arena :
         {plan::Arena::kDevice, plan::Arena::kHost, plan::Arena::kControl}) {
      memory.arena_bytes += rank.arenas.bytes[static_cast<size_t>(arena)];
    }
  }
  // Where ranks are processes, the plan is of one of them.
  memory.arena_bytes *= result.processes;
  memory::ProcessMemory& process = memory.process;
  const int64_t beside =
      process.resident_bytes - process.file_bytes - process.stack_bytes - memory.arena_bytes;
  process.heap_bytes = std::min(process.heap_bytes, std::max<int64_t>(0, beside));
  if (result.processes == 1) {
    process.resident_peak_bytes = memory::read_process_memory().resident_peak_bytes;
  }
  return memory;
}

// An emulated device's memory also belongs to this process, beside the host's budget.
std::string device_budget(const train::RunPlan& plan) {
  if (!plan.input.device.discrete) return "";
  if (plan.input.device_budget == plan::kNoLimit) return " and the device's";
  return fmt::format(" and {} of the device", format_bytes(plan.input.device_budget));
}

std::string memory_line(const train::RunPlan& plan, const train::TrainResult& result) {
  const Memory memory = memory_of(plan, result);
  return fmt::format(
      "memory   {} arenas + {} heap + {} stacks + {} program = {} counted; the kernel's peak is "
      "{}; budget {}{}\n",
      format_bytes(memory.arena_bytes), format_bytes(memory.process.heap_bytes),
      format_bytes(memory.process.stack_bytes), format_bytes(memory.process.file_bytes),
      format_bytes(memory.counted_bytes()), format_bytes(memory.process.resident_peak_bytes),
      format_bytes(plan.host_budget), device_budget(plan));
}

config::Json memory_json(const train::RunPlan& plan, const train::TrainResult& result) {
  const Memory memory = memory_of(plan, result);
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

config::Json lanes_json(const std::array<double, plan::kLaneCount>& seconds) {
  config::Json json = config::Json::object();
  for (int lane = 0; lane < plan::kLaneCount; ++lane) {
    json.set(plan::name_of(static_cast<Lane>(lane)), seconds[static_cast<size_t>(lane)]);
  }
  return json;
}

config::Json nvme_json(const config::Options& options, const train::TrainResult& result) {
  config::Json json = config::Json::object();
  json.set("read_bytes", result.io.bytes_read);
  json.set("verified_bytes", result.io.bytes_verified);
  json.set("written_bytes", result.io.bytes_written);
  json.set("step_read_bytes", result.step_read_bytes * options.ranks);
  json.set("step_write_bytes", result.step_write_bytes * options.ranks);
  json.set("backend", result.io_backend);
  return json;
}

// The place of the result, and the next command to try.
std::string ending(const Outcome& outcome) {
  const auto& [options, deepspeed, plan, result, notes, total_s, resuming] = outcome;
  const std::string state =
      fmt::format("state    {:016x} in {}\n", result.state_hash, result.checkpoint);
  if (result.stopped) return state + fmt::format("next     {}\n", resuming);
  std::string text = state + fmt::format("model    {}/model\n", options.out);
  for (const std::string& note : notes) text += "         " + note + "\n";
  // A run on a token file needs no tokenizer, but a prompt does.
  if (!text::Tokenizer::is_in(options.model)) return text;
  return text + fmt::format("next     strata generate --model {} --prompt \"...\"\n",
                            shell_word(options.out + "/model"));
}

// A note for results of drives that were slowed down on purpose.
std::string rate_limit(const config::Options& options) {
  const std::string limit =
      io::RateLimiter(
          {.read_bytes_per_s = static_cast<double>(options.nvme_rate.read_bytes_per_s),
           .write_bytes_per_s = static_cast<double>(options.nvme_rate.write_bytes_per_s)})
          .describe();
  return limit.empty() ? "" : ", limited to " + limit;
}

}  // namespace

std::string train_summary(const Outcome& outcome) {
  const auto& [options, deepspeed, plan, result, notes, total_s, resuming] = outcome;
  const int64_t steps = result.last_step - result.first_step + 1;
  if (steps <= 0) {
    return fmt::format(
               "done     nothing to do: step {} was reached before (raise --steps to go on)\n",
               result.last_step) +
           ending(outcome);
  }
  std::string text = fmt::format("done     {} steps ({} to {}) in {}{}\n", steps, result.first_step,
                                 result.last_step, format_duration(total_s),
                                 result.stopped ? ", stopped on request" : "");
  if (result.skipped_steps > 0) {
    text += fmt::format("skipped  {} of the steps, without a target token: they updated nothing\n",
                        result.skipped_steps);
  }
  if (result.tokens > 0) {
    text += fmt::format("loss     {:.4f} at first, {:.4f} at last", result.first_loss,
                        result.last_loss);
    if (result.held_out_loss) {
      text += fmt::format("; held out {:.4f}, perplexity {:.2f}", *result.held_out_loss,
                          std::exp(*result.held_out_loss));
    }
    text += '\n' + time_line(result);
    text +=
        fmt::format("step     {} (median), {} predicted ({:.0f}%); {} tokens/s\n",
                    format_duration(result.median_step_s), format_duration(plan.predicted_step_s),
                    100 * plan.predicted_step_s / result.median_step_s,
                    format_count(static_cast<double>(result.tokens) / result.train_s));
  }
  const double parameters = static_cast<double>(plan.spec->parameter_count());
  if (result.io.bytes_read + result.io.bytes_written > 0) {
    text += fmt::format(
        "NVMe     {} read (all verified), {} written; a step reads {:.1f} and writes {:.1f} bytes "
        "a parameter; by {}{}\n",
        format_bytes(result.io.bytes_read), format_bytes(result.io.bytes_written),
        static_cast<double>(result.step_read_bytes * options.ranks) / parameters,
        static_cast<double>(result.step_write_bytes * options.ranks) / parameters,
        result.io_backend, rate_limit(options));
  }
  if (result.file_bytes > 0) {
    text += fmt::format(
        "files    {} of frozen weights read from the model's files; a step reads {:.1f} bytes a "
        "parameter\n",
        format_bytes(result.file_bytes),
        static_cast<double>(result.step_file_bytes * options.ranks) / parameters);
  }
  text += memory_line(plan, result);
  return text + ending(outcome);
}

// Times and losses are null when no step was left to do.
config::Json train_summary_json(const Outcome& outcome) {
  const auto& [options, deepspeed, plan, result, notes, total_s, resuming] = outcome;
  const int64_t steps = std::max<int64_t>(0, result.last_step - result.first_step + 1);
  const auto measured = [&](double value) {
    return result.tokens > 0 ? config::Json(value) : config::Json();
  };
  config::Json json = config::Json::object();
  json.set("steps", steps);
  json.set("first_step", result.first_step);
  json.set("last_step", result.last_step);
  json.set("stopped", result.stopped);
  json.set("total_s", total_s);
  json.set("skipped_steps", result.skipped_steps);
  json.set("first_loss", measured(result.first_loss));
  json.set("last_loss", measured(result.last_loss));
  json.set("held_out_loss",
           result.held_out_loss ? config::Json(*result.held_out_loss) : config::Json());
  json.set("tokens", result.tokens);
  json.set("tokens_per_s", measured(static_cast<double>(result.tokens) / result.train_s));
  json.set("median_step_s", measured(result.median_step_s));
  json.set("predicted_step_s", plan.predicted_step_s);
  json.set("busy_s", lanes_json(result.busy_s));
  json.set("compute_stall_s", lanes_json(result.stall_s));
  json.set("nvme", nvme_json(options, result));
  json.set("file_read_bytes", result.file_bytes);
  json.set("step_file_read_bytes", result.step_file_bytes * options.ranks);
  json.set("memory", memory_json(plan, result));
  json.set("checkpoint", result.checkpoint);
  json.set("state_hash", fmt::format("{:016x}", result.state_hash));
  json.set("model", result.stopped ? config::Json() : config::Json(options.out + "/model"));
  if (!result.stopped) json.set("model_notes", config::Json::Array(notes.begin(), notes.end()));
  if (!deepspeed.is_null()) json.set("deepspeed", deepspeed);
  return json;
}

}  // namespace strata::cli
