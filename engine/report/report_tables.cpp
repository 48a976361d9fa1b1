// SPDX-License-Identifier: Apache-2.0
// What a report says in numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/units.h"
#include "engine/config/options.h"
#include "engine/report/chart.h"
#include "engine/report/page.h"
#include "engine/report/report_parts.h"
#include "engine/train/plan_report.h"

namespace strata::report {
namespace {

using config::Json;
using Row = std::vector<std::string>;
using Number = std::optional<double>;

std::string bytes_text(double bytes) {
  constexpr double kMost = 9e18;
  return format_bytes(static_cast<int64_t>(std::clamp(bytes, 0.0, kMost)));
}

// A row of what the plan says and what was measured, where either is known.
void add_row(std::vector<Row>& rows, const char* name, const Number& planned,
             const Number& measured, std::string (*format)(double)) {
  const bool known = planned || (measured && std::isfinite(*measured));
  if (!known) return;
  const auto text = [&](const Number& number) {
    return number && std::isfinite(*number) ? format(*number) : "-";
  };
  const bool both = planned && measured && std::isfinite(*measured) && *planned > 0;
  const double ratio = both ? *measured / *planned : 0;
  rows.push_back({name, text(planned), text(measured),
                  ratio >= 0.005 && ratio < 100 ? fmt::format("{:.2f}", ratio) : "-"});
}

Number mean_busy(const RunRecord& run, const char* lane) {
  const Number sum = RunRecord::number(run.summary, {"busy_s", lane});
  const Number steps = RunRecord::number(run.summary, {"steps"});
  const Number skipped = RunRecord::number(run.summary, {"skipped_steps"});
  if (!sum || !steps || *steps <= skipped.value_or(0)) return std::nullopt;
  return *sum / (*steps - skipped.value_or(0));
}

std::string tier(const RunRecord& run, const char* name, const char* title) {
  const Json* found = run.plan.find(name);
  const Number bytes = RunRecord::number(run.plan, {name, "bytes"});
  if (found == nullptr || !bytes || *bytes <= 0) return "";
  const Number budget = RunRecord::number(run.plan, {name, "budget_bytes"});
  const double whole = budget && *budget > 0 ? *budget : *bytes;
  std::vector<BarPart> parts;
  std::vector<LegendEntry> entries;
  const Json* purposes = found->find("purposes");
  int color = 1;
  if (purposes != nullptr && purposes->is_object()) {
    for (const config::JsonMember& one : purposes->members()) {
      const double part = one.value.number().value_or(0);
      if (part <= 0) continue;
      const std::string text = fmt::format("{}: {}", one.name, bytes_text(part));
      parts.push_back({text, part / whole, color});
      entries.push_back({text, color});
      color = std::min(color + 1, 9);
    }
  }
  return fmt::format("<p class=\"about\">{}: {}{}</p>\n{}{}", title, bytes_text(*bytes),
                     budget ? " of " + bytes_text(*budget) : "", bar(parts), legend(entries));
}

std::string measured_memory(const Json& summary) {
  const auto of = [&](const char* name) { return RunRecord::number(summary, {"memory", name}); };
  if (!of("counted_bytes")) return "";
  std::vector<Row> rows;
  const auto add = [&](const char* text, const char* name) {
    if (of(name)) rows.push_back({text, bytes_text(*of(name))});
  };
  add("arenas", "arena_bytes");
  add("heap", "heap_bytes");
  add("stacks", "stack_bytes");
  add("program and libraries", "program_bytes");
  add("all of it", "counted_bytes");
  add("the most that the kernel counted", "kernel_peak_bytes");
  add("the budget (--host-memory)", "budget_bytes");
  return table({"At the end, this process", "bytes"}, rows);
}

}  // namespace

double sum_of(const RunRecord& run, double (*value)(const StepRecord&)) {
  double sum = 0;
  for (const StepRecord& step : run.steps) {
    if (!step.skipped && std::isfinite(value(step))) sum += value(step);
  }
  return sum;
}

double median_of(const RunRecord& run, double (*value)(const StepRecord&)) {
  std::vector<double> values;
  for (const StepRecord& step : run.steps) {
    if (!step.skipped && std::isfinite(value(step))) values.push_back(value(step));
  }
  if (values.empty()) return NAN;
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Of all positions of the sequences, which a plan counts too.
double tokens_per_s(const RunRecord& run) {
  const Number per_s = RunRecord::number(run.plan, {"predicted_tokens_per_s"});
  const Number step_s = RunRecord::number(run.plan, {"predicted_step_s"});
  const double seconds = sum_of(run, [](const StepRecord& step) { return step.step_s; });
  const double steps = sum_of(run, [](const StepRecord&) { return 1.0; });
  return seconds > 0 ? per_s.value_or(NAN) * step_s.value_or(NAN) * steps / seconds : NAN;
}

std::string percent(double share) {
  if (!std::isfinite(share)) return "-";
  if (share > 0 && share < 1e-5) return "less than 0.001%";
  return share > 0.1 ? fmt::format("{:.0f}%", 100 * share) : fmt::format("{:.2g}%", 100 * share);
}

std::string plan_section(const RunRecord& run) {
  const auto planned = [&](std::initializer_list<const char*> path) {
    return RunRecord::number(run.plan, path);
  };
  std::vector<Row> rows;
  add_row(rows, "a step takes", planned({"predicted_step_s"}),
          median_of(run, [](const StepRecord& step) { return step.step_s; }), format_duration);
  add_row(rows, "tokens a second", planned({"predicted_tokens_per_s"}), tokens_per_s(run),
          format_count);
  add_row(rows, "compute waits in a step", planned({"compute_stall_s"}),
          median_of(run, [](const StepRecord& step) { return step.stall_total_s(); }),
          format_duration);
  for (const char* lane : {"compute", "optimizer", "update", "read_weights", "read_state", "write",
                           "upload", "download", "comm", "comm_inner", "comm_stage"}) {
    const Number busy = planned({"busy_s", lane});
    if (busy.value_or(0) <= 0) continue;
    add_row(rows, fmt::format("lane {} works in a step", lane).c_str(), busy, mean_busy(run, lane),
            format_duration);
  }
  add_row(rows, "a step reads from drives", planned({"nvme_read_bytes"}),
          median_of(run, [](const StepRecord& step) { return step.read_bytes; }), bytes_text);
  add_row(rows, "a step writes to drives", planned({"nvme_write_bytes"}),
          median_of(run, [](const StepRecord& step) { return step.write_bytes; }), bytes_text);
  const Json* bottleneck = run.plan.find("bottleneck");
  std::string about = "Medians of the steps; a lane's time is the mean of the last start.";
  if (run.plan.is_null()) {
    about += " There is no plan.json, so nothing is known of the plan.";
  } else if (bottleneck != nullptr && bottleneck->is_string()) {
    about += " By the plan, a step is limited by " + bottleneck->string() + ".";
  }
  return section("Plan and reality", about,
                 table({"", "predicted", "measured", "measured / predicted"}, rows));
}

std::string memory_section(const RunRecord& run) {
  const std::string html = tier(run, "device", "Device memory") + tier(run, "host", "Host memory") +
                           tier(run, "nvme", "Drives") + measured_memory(run.summary);
  if (html.empty()) return "";
  return section("Memory",
                 run.ranks() > 1 ? "The arenas of rank 0, as planned, by purpose."
                                 : "The arenas, as planned, by purpose.",
                 html);
}

std::string drives_section(const RunRecord& run) {
  const double written = sum_of(run, [](const StepRecord& step) { return step.write_bytes; });
  const double read = sum_of(run, [](const StepRecord& step) { return step.read_bytes; });
  if (written + read <= 0) {
    return section("Drives", "The steps moved nothing to or from drives.", "");
  }
  std::vector<Row> rows = {{"read by steps so far", train::format_drive_bytes(read)},
                           {"written by steps so far", train::format_drive_bytes(written)}};
  if (const Number whole = RunRecord::number(run.plan, {"run", "nvme_write_bytes"})) {
    rows.push_back(
        {"written from the last start to the end, as planned", train::format_drive_bytes(*whole)});
  }
  const Number rated = RunRecord::number(run.plan, {"drives", "rated_write_bytes"});
  std::string about = "Loading and checkpoints are not in these numbers.";
  if (rated && *rated > 0) {
    const Json* assumed = run.plan.find("drives")->find("is_assumed");
    rows.push_back({"rated life of the drives", train::format_drive_bytes(*rated)});
    rows.push_back({"share of it written so far", percent(written / *rated)});
    if (assumed != nullptr && assumed->boolean().value_or(false)) {
      about +=
          " The rating is assumed: 1 TB and one full write a day for 5 years for each drive "
          "(nvme_rated_write_bytes of a machine profile says it).";
    }
  }
  return section("Drives", about, table({"", "bytes"}, rows));
}

std::string options_section(const RunRecord& run) {
  const Json* options = run.run.find("options");
  if (options == nullptr || !options->is_object()) return "";
  const Json standard =
      Json::parse(config::to_json(config::Command::kTrain, config::Options()), "options");
  std::vector<Row> rows;
  for (const config::JsonMember& option : options->members()) {
    const Json* usual = standard.find(option.name);
    if (usual != nullptr && usual->dump() == option.value.dump()) continue;
    rows.push_back({option.name, run.option(option.name.c_str())});
  }
  return section("Options", "Those that are not the defaults.", table({"", ""}, rows));
}

}  // namespace strata::report
