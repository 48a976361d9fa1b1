// SPDX-License-Identifier: Apache-2.0
#include "engine/report/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "engine/base/units.h"
#include "engine/report/chart.h"
#include "engine/report/page.h"
#include "engine/report/report_parts.h"
#include "engine/train/plan_report.h"

namespace strata::report {
namespace {

std::string loss_text(double loss) {
  return std::isfinite(loss) ? fmt::format("{:.4f}", loss) : "not finite";
}

Tile steps_tile(const RunRecord& run) {
  const int64_t last = run.steps.empty() ? 0 : run.steps.back().step;
  const auto planned = run.planned_steps();
  const auto skipped = std::ranges::count(run.steps, true, &StepRecord::skipped);
  return {"Steps", planned ? fmt::format("{} of {:.0f}", last, *planned) : fmt::format("{}", last),
          skipped > 0 ? fmt::format("{} without a target token", skipped) : state_of(run)};
}

std::vector<Tile> tiles_of(const RunRecord& run) {
  std::vector<Tile> all = {steps_tile(run)};
  const auto trained = [](const StepRecord& step) { return !step.skipped; };
  const auto first = std::ranges::find_if(run.steps, trained);
  if (first == run.steps.end()) return all;
  const auto last = std::find_if(run.steps.rbegin(), run.steps.rend(), trained);
  all.push_back({"Loss", loss_text(last->loss), loss_text(first->loss) + " at first"});
  if (!run.evaluations.empty()) {
    const auto least = std::ranges::min_element(run.evaluations, [](const auto& a, const auto& b) {
      return a.loss < b.loss || (std::isnan(b.loss) && !std::isnan(a.loss));
    });
    all.push_back({"Held-out loss", loss_text(run.evaluations.back().loss),
                   fmt::format("least {} at step {}", loss_text(least->loss), least->step)});
  }
  const auto length = [](const StepRecord& step) { return step.step_s; };
  const auto predicted = RunRecord::number(run.plan, {"predicted_step_s"});
  all.push_back({"A step takes", format_duration(median_of(run, length)),
                 predicted ? format_duration(*predicted) + " predicted" : "median"});
  const auto tokens = [](const StepRecord& step) { return step.tokens; };
  all.push_back({"Tokens a second", format_count(tokens_per_s(run)),
                 format_count(sum_of(run, tokens)) + " tokens learned"});
  const auto stall = [](const StepRecord& step) { return step.stall_total_s(); };
  all.push_back({"Compute waited", percent(sum_of(run, stall) / sum_of(run, length)),
                 "of the time in steps"});
  const auto written = [](const StepRecord& step) { return step.write_bytes; };
  const double bytes = sum_of(run, written);
  if (bytes > 0) all.push_back({"Written to drives", train::format_drive_bytes(bytes), "by steps"});
  return all;
}

std::string time_text(double unix_s) {
  constexpr double kMost = 1e11;  // the year 5138
  if (!(unix_s >= 0 && unix_s < kMost)) return "an unknown day";
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(static_cast<std::time_t>(unix_s)));
}

std::string about(const RunRecord& run) {
  const config::Json* version = run.run.find("strata");
  std::string text = "Model " + run.option("model") + ", data " + run.option("data");
  if (run.ranks() > 1) {
    text += fmt::format(". {:.0f} ranks: times and waits are those of rank 0, bytes those of all",
                        run.ranks());
  }
  if (!run.steps.empty()) {
    text += ". Step " + std::to_string(run.steps.back().step) + " ended on " +
            time_text(run.steps.back().time_s);
  }
  text += ".";
  if (version != nullptr && version->is_string()) text += " strata " + version->string() + ".";
  return text;
}

}  // namespace

std::string state_of(const RunRecord& run) {
  const auto is = [&](const char* name) {
    const config::Json* value = run.summary.find(name);
    return value != nullptr && value->boolean().value_or(false);
  };
  if (run.summary.is_null()) return run.is_locked ? "under way, or killed" : "interrupted";
  if (is("stopped")) return "stopped on request";
  return is("stopped_early") ? "stopped early" : "done";
}

std::string report_html(const RunRecord& run) {
  std::string html = fmt::format("<h1>{}</h1>\n<p class=\"about\">{}</p>\n", escaped(run.path),
                                 escaped(about(run)));
  html += tiles(tiles_of(run));
  if (run.steps.empty()) {
    html += section("No step yet", "metrics.jsonl has no record of a step.", "");
  } else {
    html += loss_section(run) + samples_section(run) + rate_sections(run) + time_section(run);
  }
  html += lanes_section(run) + plan_section(run) + memory_section(run) + drives_section(run) +
          options_section(run);
  return page("strata " + run.path, html);
}

}  // namespace strata::report
