// SPDX-License-Identifier: Apache-2.0
// What happens over steps, and within one.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/report/chart.h"
#include "engine/report/page.h"
#include "engine/report/report_parts.h"
#include "engine/report/timeline.h"

namespace strata::report {
namespace {

constexpr ChartSize kWide = {1000, 240};
constexpr ChartSize kHalf = {500, 200};
constexpr size_t kStackBuckets = 250;

// What compute waits for, by the names of metrics.jsonl.
struct Cause {
  std::string_view name;
  const char* text;
  int color;
};
constexpr Cause kCauses[] = {{"read_weights", "waits for weights from drives", 3},
                             {"read_state", "waits for state from drives", 6},
                             {"write", "waits for writes to drives", 2},
                             {"optimizer", "waits for the optimizer", 4},
                             {"update", "waits for the optimizer on the device", 9},
                             {"upload", "waits for uploads to the device", 5},
                             {"download", "waits for downloads from the device", 7},
                             {"comm", "waits for other ranks", 8}};

Cause cause_of(const std::string& name) {
  const auto at = std::ranges::find(kCauses, name, &Cause::name);
  return at == std::end(kCauses) ? Cause{name, "waits", 9} : *at;
}

std::vector<Point> points_of(const RunRecord& run, double StepRecord::*value) {
  std::vector<Point> points;
  for (const StepRecord& step : run.steps) {
    points.push_back({static_cast<double>(step.step), step.*value});
  }
  return points;
}

bool has_any(const std::vector<Point>& points) {
  return std::ranges::any_of(points, [](const Point& at) { return std::isfinite(at.y); });
}

std::string one_line(const RunRecord& run, const char* name, double StepRecord::*value) {
  const std::vector<Point> points = points_of(run, value);
  if (!has_any(points)) return section(name, "No step has a number for it.", "");
  return section(name, "", line_chart(name, {{name, 1, points}}, short_number, kHalf));
}

// The mean of some steps: what compute did not wait, and by cause what it did. Parts that are zero
// in every step are left out.
Stack stack_of(const RunRecord& run) {
  std::vector<size_t> shown;
  for (size_t cause = 0; cause < run.causes.size(); ++cause) {
    const auto waits = [&](const StepRecord& step) { return step.stall_s[cause] > 0; };
    if (std::ranges::any_of(run.steps, waits)) shown.push_back(cause);
  }
  Stack stack = {{"compute"}, {1}, {}, {}};
  for (const size_t cause : shown) {
    stack.names.emplace_back(cause_of(run.causes[cause]).text);
    stack.colors.push_back(cause_of(run.causes[cause]).color);
  }
  const size_t buckets = std::min(run.steps.size(), kStackBuckets);
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    const size_t begin = bucket * run.steps.size() / buckets;
    const size_t end = (bucket + 1) * run.steps.size() / buckets;
    std::vector<double> parts(shown.size() + 1);
    for (size_t i = begin; i < end; ++i) {
      const StepRecord& step = run.steps[i];
      const double length_s = std::isfinite(step.step_s) ? step.step_s : 0;
      const auto steps = static_cast<double>(end - begin);
      parts[0] += std::max(0.0, length_s - step.stall_total_s()) / steps;
      for (size_t k = 0; k < shown.size(); ++k) parts[k + 1] += step.stall_s[shown[k]] / steps;
    }
    stack.x.push_back(static_cast<double>(run.steps[begin].step) - 0.5);
    stack.heights.push_back(std::move(parts));
  }
  stack.x.push_back(static_cast<double>(run.steps.back().step) + 0.5);
  return stack;
}

}  // namespace

std::string loss_section(const RunRecord& run) {
  std::vector<Series> series = {{"loss", 1, points_of(run, &StepRecord::loss)}};
  std::vector<LegendEntry> entries = {{"loss of the step", 1}};
  if (!run.evaluations.empty()) {
    series.push_back({"held-out loss", 2, {}, true});
    for (const EvaluationRecord& one : run.evaluations) {
      series.back().points.push_back({static_cast<double>(one.step), one.loss});
    }
    entries.push_back({"held-out loss", 2});
  }
  const auto lost = std::ranges::count_if(
      run.steps, [](const StepRecord& step) { return !std::isfinite(step.loss) && !step.skipped; });
  const std::string about =
      lost == 0 ? "" : fmt::format("The loss of {} is not finite.", counted(lost, "step"));
  return section("Loss", about,
                 line_chart("Loss over steps", series, short_number, kWide) + legend(entries));
}

std::string rate_sections(const RunRecord& run) {
  return "<div class=\"pair\">\n" + one_line(run, "Gradient norm", &StepRecord::grad_norm) +
         one_line(run, "Learning rate", &StepRecord::lr) + "</div>\n";
}

std::string time_section(const RunRecord& run) {
  const Stack stack = stack_of(run);
  std::vector<LegendEntry> entries;
  for (size_t part = 0; part < stack.names.size(); ++part) {
    double sum_s = 0;
    double all_s = 0;
    for (const auto& parts : stack.heights) {
      sum_s += parts[part];
      for (const double one : parts) all_s += one;
    }
    entries.push_back(
        {fmt::format("{} {}", stack.names[part], percent(sum_s / all_s)), stack.colors[part]});
  }
  return section(
      "Time of a step", "",
      stacked_chart("Time of a step by cause, over steps", stack, format_duration, kWide) +
          legend(entries));
}

std::string lanes_section(const RunRecord& run) {
  const config::Json* found = run.plan.find("lanes");
  const config::Json predicted = found == nullptr ? config::Json() : *found;
  const double end_s = std::max(end_of(predicted), end_of(run.lanes));
  if (end_s <= 0) return "";
  const auto part = [&](const std::string& name, const config::Json& lanes) {
    const std::string drawn = timeline(name, lanes, end_s);
    return drawn.empty() ? "" : fmt::format("<p class=\"about\">{}</p>\n{}", escaped(name), drawn);
  };
  const auto step = RunRecord::number(run.lanes, {"step"});
  const std::string measured =
      step ? part(fmt::format("Measured, step {:.0f} of rank 0", *step), run.lanes) : "";
  const std::string about = measured.empty()
                                ? "What each lane does, from a step's first op to its last. With "
                                  "--trace-steps, the measured lanes are shown too."
                                : "What each lane does, from a step's first op to its last.";
  return section("The lanes of a step", about,
                 part("Predicted by the simulator", predicted) + measured +
                     timeline_legend({&predicted, &run.lanes}));
}

}  // namespace strata::report
