// SPDX-License-Identifier: Apache-2.0
// How the model continued the prompts of --sample-prompts over the run.
#include <fmt/format.h>

#include <algorithm>

#include "engine/report/chart.h"
#include "engine/report/page.h"
#include "engine/report/report_parts.h"

namespace strata::report {
namespace {

constexpr size_t kMostShown = 12;  // of each prompt

// The first, the last, and some between them at equal distances.
std::vector<const EvaluationRecord*> shown_of(const RunRecord& run) {
  std::vector<const EvaluationRecord*> all;
  for (const EvaluationRecord& one : run.evaluations) {
    if (!one.samples.empty()) all.push_back(&one);
  }
  const size_t count = std::min(all.size(), kMostShown);
  std::vector<const EvaluationRecord*> shown;
  for (size_t i = 0; i < count; ++i) {
    shown.push_back(all[count == 1 ? 0 : i * (all.size() - 1) / (count - 1)]);
  }
  return shown;
}

std::string text_of(const EvaluationRecord& record, const std::string& prompt) {
  for (const SampleRecord& one : record.samples) {
    if (one.prompt == prompt) return one.text;
  }
  return "";  // of another start of the run, with other prompts
}

}  // namespace

std::string samples_section(const RunRecord& run) {
  const std::vector<const EvaluationRecord*> shown = shown_of(run);
  if (shown.empty()) return "";
  std::string html;
  for (const SampleRecord& newest : shown.back()->samples) {
    html +=
        fmt::format("<p class=\"about\">{}</p>\n<div class=\"samples\">", escaped(newest.prompt));
    std::vector<std::vector<std::string>> rows;
    for (const EvaluationRecord* record : shown) {
      rows.push_back({std::to_string(record->step), text_of(*record, newest.prompt)});
    }
    html += table({"Step", "Text"}, rows) + "</div>\n";
  }
  return section(
      "Samples",
      "What the model wrote after each prompt, with the most likely tokens. metrics.jsonl "
      "has those of all evaluations.",
      html);
}

}  // namespace strata::report
