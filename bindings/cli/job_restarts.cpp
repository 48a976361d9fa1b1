// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/job_restarts.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "bindings/cli/stop_signals.h"
#include "engine/base/plural.h"

namespace strata::cli {
namespace {

constexpr int kUsageOrConfig = 2;
constexpr int kDoesNotFit = 3;
constexpr int kEndedAtOnce = 130;  // by a second Ctrl-C

bool is_error(const RanksEnd& end) {
  return end.rank >= 0 && end.signal == 0 && !end.is_stuck;
}

std::string from_step(int64_t step) {
  return step == 0 ? "from its beginning" : fmt::format("from step {}", step);
}

}  // namespace

bool is_final(const RanksEnd& end) {
  if (end.is_stuck) return false;
  if (end.signal != 0) return std::ranges::count(kStopSignals, end.signal) > 0;
  return end.code == kUsageOrConfig || end.code == kDoesNotFit || end.code == kEndedAtOnce;
}

RestartAnswer RestartRule::answer(const StartFailure& failure, int64_t ranks) {
  const std::string what =
      "launch: " + (failure.text.empty() ? failure.end.text(failure.host) : failure.text);
  const bool comes_again = is_error(failure.end) && before_ && is_error(before_->end) &&
                           before_->end.code == failure.end.code && before_->step == failure.step;
  before_ = failure;
  if (is_final(failure.end) || restarts_max_ == 0) {
    return {.line = failure.end.signal != 0 ? what : ""};
  }
  if (comes_again) {
    return {.line = fmt::format("{} twice from the same step, so it would fail again (mend what "
                                "its error says, then resume the run)",
                                what)};
  }
  if (restarts_ == restarts_max_) {
    return {.line = fmt::format("{} after {}, the most that --max-restarts allows (find the cause, "
                                "then resume the run)",
                                what, counted(restarts_, "restart"))};
  }
  ++restarts_;
  return {.again = true,
          .line = fmt::format("{}; restart {} of {} goes on {} with {}", what, restarts_,
                              restarts_max_, from_step(failure.step), counted(ranks, "rank"))};
}

}  // namespace strata::cli
