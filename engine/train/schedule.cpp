// SPDX-License-Identifier: Apache-2.0
#include "engine/train/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace strata::train {
namespace {

void require(bool is_met, std::string_view option, double value, std::string_view wanted) {
  if (is_met) return;
  throw Error(ErrorCode::kConfig,
              fmt::format("set up the learning-rate schedule: {} {}: {}", option, value, wanted));
}

bool is_ratio(double value) {
  return value >= 0 && value <= 1;
}

}  // namespace

std::optional<ScheduleKind> schedule_named(std::string_view name) {
  if (name == "constant") return ScheduleKind::kConstant;
  if (name == "linear") return ScheduleKind::kLinear;
  if (name == "cosine") return ScheduleKind::kCosine;
  return std::nullopt;
}

Schedule::Schedule(const ScheduleOptions& options) : options_(options) {
  require(std::isfinite(options.peak) && options.peak >= 0, "--lr", options.peak,
          "must be a number from 0");
  require(is_ratio(options.min_ratio), "--min-lr-ratio", options.min_ratio, "must be from 0 to 1");
  require(is_ratio(options.warmup_ratio), "--warmup-ratio", options.warmup_ratio,
          "must be from 0 to 1");
  require(options.warmup_ratio == 0 || options.warmup_steps == 0, "--warmup-ratio",
          options.warmup_ratio, "cannot be combined with --warmup-steps");
  require(options.steps > 0, "--steps", static_cast<double>(options.steps), "must be at least 1");
  if (options.warmup_ratio > 0) {
    options_.warmup_steps =
        static_cast<int64_t>(std::ceil(options.warmup_ratio * static_cast<double>(options.steps)));
  }
  require(options_.warmup_steps >= 0 && options_.warmup_steps <= options.steps, "--warmup-steps",
          static_cast<double>(options_.warmup_steps),
          fmt::format("must be from 0 to --steps {}", options.steps));
}

double Schedule::lr(int64_t step) const {
  STRATA_CHECK(step >= 1);
  const double peak = options_.peak;
  const int64_t warmup = options_.warmup_steps;
  if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  if (options_.kind == ScheduleKind::kConstant) return peak;
  const double floor = options_.min_ratio * peak;
  if (step > options_.steps) return floor;
  const double progress =
      static_cast<double>(step - 1 - warmup) / static_cast<double>(options_.steps - warmup);
  const double shape = options_.kind == ScheduleKind::kLinear
                           ? 1.0 - progress
                           : 0.5 * (1.0 + std::cos(3.14159265358979323846 * progress));
  return floor + (peak - floor) * shape;
}

}  // namespace strata::train
