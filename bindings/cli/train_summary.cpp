// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/train_summary.h"

#include <fmt/format.h>

#include "engine/base/plural.h"
#include "engine/base/shell_word.h"
#include "engine/base/units.h"
#include "engine/text/tokenizer.h"
#include "engine/train/run_summary.h"
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
      format_duration(link),
      format_duration(at(stall, Lane::kComm) + at(stall, Lane::kCommInner) +
                      at(stall, Lane::kCommStage)));
}

// An emulated device's memory also belongs to this process, beside the host's budget.
std::string device_budget(const train::RunPlan& plan) {
  if (!plan.input.device.discrete) return "";
  if (plan.input.device_budget == plan::kNoLimit) return " and the device's";
  return fmt::format(" and {} of the device", format_bytes(plan.input.device_budget));
}

// What is counted is that of all machines.
std::string machines_of(const train::RunPlan& plan) {
  const int64_t machines = plan.input.mesh.world / std::max<int64_t>(1, plan.ranks_on_node);
  return machines > 1 ? fmt::format(" on each of {} machines", machines) : "";
}

std::string memory_line(const train::RunPlan& plan, const train::TrainResult& result) {
  const train::RunMemory memory = train::memory_of(plan, result);
  return fmt::format(
      "memory   {} arenas + {} heap + {} stacks + {} program = {} counted; the kernel's peak is "
      "{}; budget {}{}{}\n",
      format_bytes(memory.arena_bytes), format_bytes(memory.process.heap_bytes),
      format_bytes(memory.process.stack_bytes), format_bytes(memory.process.file_bytes),
      format_bytes(memory.counted_bytes()), format_bytes(memory.process.resident_peak_bytes),
      format_bytes(plan.host_budget), machines_of(plan), device_budget(plan));
}

std::string early_line(const config::Options& options, const train::TrainResult& result) {
  return fmt::format(
      "early    {} in a row did not lower the held-out loss below {:.4f} of step {} "
      "(--patience {})\n",
      counted(result.held_out.since_best, "evaluation"), result.held_out.best_loss,
      result.held_out.best_step, options.patience);
}

std::string best_line(const config::Options& options, const train::TrainResult& result) {
  if (!result.best_step) return "";
  const std::string loss =
      std::isnan(result.best_loss) ? "not known" : fmt::format("{:.4f}", result.best_loss);
  return fmt::format("best     held out {} at step {}, kept as {}/best\n", loss, *result.best_step,
                     options.out);
}

// The place of the result, and the next command to try.
std::string ending(const Outcome& outcome) {
  const auto& [options, deepspeed, plan, result, notes, total_s, resuming, advice] = outcome;
  const std::string state =
      fmt::format("state    {:016x} in {}\n", result.state_hash, result.checkpoint);
  if (result.stopped) return state + fmt::format("next     {}\n", resuming);
  std::string text = state + fmt::format("model    {}/model\n", options.out);
  for (const std::string& note : notes) text += "         " + note + "\n";
  // A run on a token file needs no tokenizer, but a prompt does.
  if (!text::Tokenizer::is_in(options.model)) return text;
  const bool has_better = result.best_step && *result.best_step < result.last_step;
  const std::string from = has_better ? "--resume " + shell_word(options.out + "/best")
                                      : "--model " + shell_word(options.out + "/model");
  return text + fmt::format("next     strata generate {} --prompt \"...\"\n", from);
}

// " (97%)": a prediction as a share of what was measured, where that says more than the two.
std::string share_text(double predicted, double measured) {
  const double share = predicted / measured;
  return share >= 0.1 && share < 2 ? fmt::format(" ({:.0f}%)", 100 * share) : "";
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

// "1471 tokens/s, 735 a rank; MFU 0.52"
std::string speed_text(const Outcome& outcome) {
  const double tokens_per_s = train::tokens_per_s(outcome.options, outcome.result);
  std::string text = format_count(tokens_per_s) + " tokens/s";
  if (outcome.options.ranks > 1) {
    const double of_rank = tokens_per_s / static_cast<double>(outcome.options.ranks);
    text += fmt::format(", {} a rank", format_count(of_rank));
  }
  const double mfu = outcome.plan.mfu(outcome.result.median_step_s);
  if (mfu > 0) text += fmt::format("; MFU {:.2f}", mfu);
  return text;
}

std::string why_nothing(const config::Options& options, const train::TrainResult& result) {
  if (result.stopped_early) {
    return fmt::format("--patience {} ended the run at step {} (raise --patience to go on)",
                       options.patience, result.last_step);
  }
  return fmt::format("step {} was reached before (raise --steps to go on)", result.last_step);
}

}  // namespace

std::string train_summary(const Outcome& outcome) {
  const auto& [options, deepspeed, plan, result, notes, total_s, resuming, advice] = outcome;
  const int64_t steps = result.last_step - result.first_step + 1;
  if (steps <= 0 && result.held_out_loss) {
    return fmt::format(
               "done     no step was left; step {} was evaluated, which a stop had prevented\n",
               result.last_step) +
           ending(outcome);
  }
  if (steps <= 0 && result.stopped) {
    return "done     no step: the run was stopped on request\n" + ending(outcome);
  }
  if (steps <= 0) {
    return "done     nothing to do: " + why_nothing(options, result) + '\n' + ending(outcome);
  }
  std::string text = fmt::format("done     {} ({} to {}) in {}{}\n", counted(steps, "step"),
                                 result.first_step, result.last_step, format_duration(total_s),
                                 result.stopped ? ", stopped on request" : "");
  if (result.stopped_early) text += early_line(options, result);
  if (result.skipped_steps > 0) {
    text += fmt::format("skipped  {} of the steps, without a target token: they updated nothing\n",
                        result.skipped_steps);
  }
  if (scales_loss(options.recipe)) {
    text += fmt::format(
        "scale    of the next loss {:.0f}; {} of the steps overflowed: they "
        "updated nothing\n",
        result.loss_scale, result.overflowed_steps);
  }
  if (result.tokens > 0) {
    text += fmt::format("loss     {:.4f} at first, {:.4f} at last", result.first_loss,
                        result.last_loss);
    if (result.held_out_loss) {
      text += fmt::format("; held out {:.4f}, perplexity {}", *result.held_out_loss,
                          train::perplexity_text(*result.held_out_loss, 2));
    }
    text += '\n' + best_line(options, result) + time_line(result);
    text +=
        fmt::format("step     {} (median), {} predicted{}; {}\n",
                    format_duration(result.median_step_s), format_duration(plan.predicted_step_s),
                    share_text(plan.predicted_step_s, result.median_step_s), speed_text(outcome));
    const std::string limit = train::advice_text(advice);
    if (!limit.empty()) text += "limit    " + limit + '\n';
  }
  const double parameters = static_cast<double>(plan.spec->parameter_count());
  if (result.io.bytes_read + result.io.bytes_written > 0) {
    text += fmt::format(
        "NVMe     {} read (all verified), {} written; a step reads {:.1f} and writes {:.1f} bytes "
        "a parameter; by {}{}\n",
        format_bytes(result.io.bytes_read), format_bytes(result.io.bytes_written),
        static_cast<double>(result.step_read_bytes) / parameters,
        static_cast<double>(result.step_write_bytes) / parameters, result.io_backend,
        rate_limit(options));
  }
  if (plan.processes && result.step_sent.all() > 0) {
    text +=
        fmt::format("ranks    a step sends {} within machines and {} between them\n",
                    format_bytes(result.step_sent.within), format_bytes(result.step_sent.between));
  }
  if (result.file_bytes > 0) {
    text += fmt::format(
        "files    {} of frozen weights read from the model's files; a step reads {:.1f} bytes a "
        "parameter\n",
        format_bytes(result.file_bytes), static_cast<double>(result.step_file_bytes) / parameters);
  }
  text += memory_line(plan, result);
  return text + ending(outcome);
}

config::Json train_summary_json(const Outcome& outcome) {
  const auto& [options, deepspeed, plan, result, notes, total_s, resuming, advice] = outcome;
  config::Json json = train::summary_json(options, plan, result, total_s);
  json.set("advice", train::advice_json(advice));
  json.set("model", result.stopped ? config::Json() : config::Json(options.out + "/model"));
  if (!result.stopped) json.set("model_notes", config::Json::Array(notes.begin(), notes.end()));
  if (!deepspeed.is_null()) json.set("deepspeed", deepspeed);
  return json;
}

}  // namespace strata::cli
