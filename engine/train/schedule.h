// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace strata::train {

enum class ScheduleKind { kConstant, kLinear, kCosine };
std::optional<ScheduleKind> schedule_named(std::string_view name);

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::kCosine;
  double peak = 0;    // the learning rate after warm-up
  int64_t steps = 0;  // of the whole run
  int64_t warmup_steps = 0;
  double warmup_ratio = 0;  // of the steps, rounded up; instead of warmup_steps
  double min_ratio = 0;     // the floor as a part of the peak
};

// The learning rate of step s, counted from 1, with W warm-up steps of S and the floor f =
// min_ratio * peak:
//
//   s <= W      peak * s / W
//   constant    peak
//   linear      f + (peak - f) * (1 - p)               p = (s - 1 - W) / (S - W), the part that is
//   cosine      f + (peak - f) * (1 + cos(pi*p)) / 2   done: step W+1 has the peak
//   s > S       f; the peak when the schedule is constant
//
// Pure: a resumed run needs only the step. Failure: the constructor throws Error for a peak that is
// negative or not finite, for more warm-up steps than steps, and for ratios outside of [0, 1].
class Schedule {
 public:
  explicit Schedule(const ScheduleOptions& options);
  double lr(int64_t step) const;
  int64_t warmup_steps() const { return options_.warmup_steps; }

 private:
  ScheduleOptions options_;
};

}  // namespace strata::train
