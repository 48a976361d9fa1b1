// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/units.h"
#include "engine/train/plan_report.h"

namespace strata::train {

// Lines of a label and a text, each with its explanation if that is wanted.
class PlanLines {
 public:
  explicit PlanLines(bool explains) : explains_(explains) {}

  void add(std::string_view label, const std::string& text, std::string_view why) {
    text_ += fmt::format("{:<8} {}\n", label, text);
    explain(why);
  }
  void add_bytes(int64_t bytes, std::string_view what, std::string_view why) {
    text_ += fmt::format("         {:>11}  {}\n", format_bytes(bytes), what);
    explain(why);
  }
  std::string text() && { return std::move(text_); }

 private:
  void explain(std::string_view why) {
    if (explains_ && !why.empty()) text_ += fmt::format("           -> {}\n", why);
  }

  const bool explains_;
  std::string text_;
};

// " of all ranks" where there are several.
inline const char* of_all_ranks(const RunPlan& run) {
  return run.input.mesh.world > 1 ? " of all ranks" : "";
}

// What a step and the whole run do to drives, and how long the run takes.
void add_drives_and_run(const RunPlan& run, const PlanReport& report, PlanLines& table);

}  // namespace strata::train
