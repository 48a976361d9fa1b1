// SPDX-License-Identifier: Apache-2.0
// Compared plans as a table for people, and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/units.h"
#include "engine/train/plan_compare.h"

namespace strata::train {
namespace {

// A row of the table; of the whole run where its number of steps is known.
struct Cells {
  std::string step, time, speed, limit, drives;
};

Cells heading_of(bool has_run) {
  return {"a step takes", has_run ? "the run takes" : "tokens/s", "speed", "limited by",
          has_run ? "wears drives" : "a step writes"};
}

Cells cells_of(const Compared& one, const Compared& planned, bool has_run) {
  const PlanReport& report = one.report;
  const double speed =
      planned.refusal.empty() ? report.tokens_per_s() / planned.report.tokens_per_s() : 0;
  const bool writes = report.totals.write_bytes > 0;
  return {format_duration(report.simulated.step_s),
          has_run ? format_duration(report.run.seconds) : format_count(report.tokens_per_s()),
          speed > 0 ? fmt::format("{:.2f}", speed) : "-", report.bottleneck,
          !writes   ? "-"
          : has_run ? format_share(report.run.drive_life)
                    : format_drive_bytes(static_cast<double>(report.totals.write_bytes))};
}

// How a row differs from the plan, in words. `planned` fits, and so does the row.
std::string verdict_of(const Compared& one, const Compared& planned) {
  constexpr double kNoticed = 0.005;
  const double faster = one.report.tokens_per_s() / planned.report.tokens_per_s() - 1;
  const std::string meaning = one.remark.empty() ? "" : ": " + one.remark;
  if (&one == &planned) return "";
  if (one.kind != ComparedKind::kWhatIf) {
    if (one.is_planned) return "as planned" + meaning;
    const std::string about = one.is_rough ? "about " : "";
    const std::string percent = fmt::format("{}{:.0f}%", about, 100 * std::abs(faster));
    if (faster > kNoticed) return fmt::format("{} faster, but {}", percent, one.remark);
    return (faster < -kNoticed ? percent + " slower" : about + "as fast") + meaning;
  }
  if (std::abs(faster) > kNoticed) return one.remark;
  return fmt::format("{}{}limited by {}, so as fast as planned", one.remark,
                     one.remark.empty() ? "" : "; ", one.report.bottleneck);
}

std::string line_of(std::string_view name, const Cells& cells, std::string_view remark) {
  return fmt::format("{:<40} {:>12}  {:>13} {:>6}  {:<23} {:>13}{}{}\n", name, cells.step,
                     cells.time, cells.speed, cells.limit, cells.drives, remark.empty() ? "" : "  ",
                     remark);
}

std::string refusal_line(std::string_view name, const Compared& one) {
  const std::string meaning = one.remark.empty() ? "" : " (" + one.remark + ")";
  return fmt::format("{:<40} does not fit: {}{}\n", name, one.refusal, meaning);
}

}  // namespace

std::string compared_table(const std::vector<Compared>& compared) {
  const auto as_planned = std::ranges::find(compared, ComparedKind::kWhatIf,
                                            [](const Compared& one) { return one.kind; });
  const Compared& planned = as_planned == compared.end() ? compared.front() : *as_planned;
  const bool has_run =
      std::ranges::any_of(compared, [](const Compared& one) { return one.report.run.steps > 0; });
  std::string text;
  const auto add = [&](ComparedKind kind, std::string_view heading, char mark,
                       std::string_view meaning) {
    const auto is_of_kind = [&](const Compared& one) { return one.kind == kind; };
    if (std::ranges::none_of(compared, is_of_kind)) return;
    text += '\n' + line_of(heading, heading_of(has_run), "");
    for (const Compared& one : compared) {
      if (one.kind != kind) continue;
      const std::string name = fmt::format("{} {}", one.is_planned ? mark : ' ', one.name);
      text += one.refusal.empty()
                  ? line_of(name, cells_of(one, planned, has_run),
                            planned.refusal.empty() ? verdict_of(one, planned) : one.remark)
                  : refusal_line(name, one);
    }
    if (planned.refusal.empty()) text += fmt::format("{} {}\n", mark, meaning);
  };
  add(ComparedKind::kMesh, "Which meshes fit", '=', "the plan above: it is the fastest");
  add(ComparedKind::kStrategy, "Which options fit", '=',
      "the plan above, which each of these options makes");
  add(ComparedKind::kWhatIf, "What would change it", '*', "the same things lie in the same places");
  if (planned.refusal.empty()) text += "speed: tokens a second, as a multiple of the plan's\n";
  if (has_run) {
    text +=
        "the run takes: for the same tokens, so twice the batch or the ranks has half the steps\n"
        "wears drives: the share of their rated life that the run takes\n";
  }
  return text;
}

config::Json compared_json(const std::vector<Compared>& compared) {
  config::Json list = config::Json::array();
  for (const Compared& one : compared) {
    config::Json row = config::Json::object();
    const bool fits = one.refusal.empty();
    row.set("kind", one.kind == ComparedKind::kStrategy ? "strategy"
                    : one.kind == ComparedKind::kMesh   ? "mesh"
                                                        : "what_if");
    row.set("name", one.name);
    row.set("remark", one.remark);
    row.set("is_planned", one.is_planned);
    row.set("is_rough", one.is_rough);
    row.set("refused", fits ? config::Json() : config::Json(one.refusal));
    const auto number = [&](double value) { return fits ? config::Json(value) : config::Json(); };
    row.set("predicted_step_s", number(one.report.simulated.step_s));
    row.set("predicted_tokens_per_s", number(one.report.tokens_per_s()));
    row.set("bottleneck", fits ? config::Json(one.report.bottleneck) : config::Json());
    row.set("nvme_write_bytes", number(static_cast<double>(one.report.totals.write_bytes)));
    row.set("run_seconds", number(one.report.run.seconds));
    row.set("drive_life", number(one.report.run.drive_life));
    list.push_back(std::move(row));
  }
  return list;
}

}  // namespace strata::train
