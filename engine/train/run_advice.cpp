// SPDX-License-Identifier: Apache-2.0
#include "engine/train/run_advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/clock.h"

namespace strata::train {
namespace {

constexpr double kWorthSaying = 0.03;
constexpr size_t kMostSaid = 2;

}  // namespace

RunAdvice advise(const PlanBasis& basis, double planning_s, double limit_s) {
  const double begin_s = now_s();
  double longest_s = planning_s;
  double last_s = begin_s;
  bool is_whole = true;
  const auto may_plan = [&] {
    const double at_s = now_s();
    longest_s = std::max(longest_s, at_s - last_s);
    last_s = at_s;
    if (at_s - begin_s + longest_s > limit_s) is_whole = false;
    return is_whole;
  };
  const std::vector<Compared> compared = compare_hardware(basis, may_plan);
  return advice_of(compared, is_whole);
}

RunAdvice advice_of(const std::vector<Compared>& compared, bool is_whole) {
  RunAdvice advice;
  if (compared.empty() || !compared.front().refusal.empty()) return advice;
  const PlanReport& planned = compared.front().report;
  advice.limit = planned.bottleneck;
  advice.is_whole = is_whole;
  for (const Compared& one : compared) {
    if (!one.refusal.empty()) continue;
    const double shorter = 1 - one.report.simulated.step_s / planned.simulated.step_s;
    if (shorter >= kWorthSaying) advice.changes.push_back({one.name, shorter});
  }
  std::ranges::stable_sort(advice.changes, std::greater<>(), &RunAdvice::Change::shorter);
  return advice;
}

std::string advice_text(const RunAdvice& advice) {
  if (advice.limit.empty()) return "";
  std::string text = advice.limit + ", by the plan";
  for (size_t i = 0; i < std::min(kMostSaid, advice.changes.size()); ++i) {
    text += fmt::format("; {}: steps {:.0f}% shorter", advice.changes[i].name,
                        100 * advice.changes[i].shorter);
  }
  if (advice.changes.empty() && advice.is_whole) {
    text += "; more memory or drives would not change it";
  }
  return text;
}

config::Json advice_json(const RunAdvice& advice) {
  if (advice.limit.empty()) return {};
  config::Json changes = config::Json::array();
  for (const RunAdvice::Change& change : advice.changes) {
    config::Json one = config::Json::object();
    one.set("name", change.name);
    one.set("shorter", change.shorter);
    changes.push_back(std::move(one));
  }
  config::Json json = config::Json::object();
  json.set("limit", advice.limit);
  json.set("changes", std::move(changes));
  json.set("is_whole", advice.is_whole);
  return json;
}

}  // namespace strata::train
