// SPDX-License-Identifier: Apache-2.0
// Learning rates by value, at the borders of warm-up and decay.
#include "engine/train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"

namespace strata::train {
namespace {

TEST(Schedule, ConstantWarmsUpToThePeak) {
  const Schedule schedule(
      {.kind = ScheduleKind::kConstant, .peak = 0.8, .steps = 10, .warmup_steps = 4});
  EXPECT_DOUBLE_EQ(schedule.lr(1), 0.2);
  EXPECT_DOUBLE_EQ(schedule.lr(3), 0.6);
  EXPECT_DOUBLE_EQ(schedule.lr(4), 0.8);
  EXPECT_DOUBLE_EQ(schedule.lr(5), 0.8);
  EXPECT_DOUBLE_EQ(schedule.lr(99), 0.8);
}

TEST(Schedule, LinearFallsToTheFloor) {
  const Schedule schedule({.kind = ScheduleKind::kLinear,
                           .peak = 1.0,
                           .steps = 10,
                           .warmup_steps = 2,
                           .min_ratio = 0.2});
  EXPECT_DOUBLE_EQ(schedule.lr(2), 1.0);
  EXPECT_DOUBLE_EQ(schedule.lr(3), 1.0);
  EXPECT_DOUBLE_EQ(schedule.lr(7), 0.6);
  EXPECT_DOUBLE_EQ(schedule.lr(10), 0.3);
  EXPECT_DOUBLE_EQ(schedule.lr(11), 0.2);
}

TEST(Schedule, CosineFallsToTheFloor) {
  const Schedule schedule({.kind = ScheduleKind::kCosine,
                           .peak = 2.0,
                           .steps = 9,
                           .warmup_steps = 1,
                           .min_ratio = 0.1});
  EXPECT_DOUBLE_EQ(schedule.lr(2), 2.0);
  EXPECT_NEAR(schedule.lr(4), 0.2 + 0.9 * (1 + std::sqrt(0.5)), 1e-15);  // a quarter of the way
  EXPECT_DOUBLE_EQ(schedule.lr(6), 1.1);                                 // half way
  EXPECT_DOUBLE_EQ(schedule.lr(10), 0.2);
}

TEST(Schedule, WithoutWarmUpTheFirstStepIsAtThePeak) {
  EXPECT_DOUBLE_EQ(Schedule({.kind = ScheduleKind::kCosine, .peak = 3.0, .steps = 5}).lr(1), 3.0);
  EXPECT_DOUBLE_EQ(Schedule({.kind = ScheduleKind::kLinear, .peak = 3.0, .steps = 1}).lr(1), 3.0);
}

TEST(Schedule, WarmUpRatioIsAPartOfTheSteps) {
  EXPECT_EQ(Schedule({.peak = 1, .steps = 100, .warmup_ratio = 0.03}).warmup_steps(), 3);
  EXPECT_EQ(Schedule({.peak = 1, .steps = 10, .warmup_ratio = 0.01}).warmup_steps(), 1);
}

TEST(Schedule, WarmUpMayTakeAllSteps) {
  const Schedule schedule({.peak = 1, .steps = 4, .warmup_steps = 4});
  EXPECT_DOUBLE_EQ(schedule.lr(4), 1.0);
  EXPECT_DOUBLE_EQ(schedule.lr(5), 0.0);
}

TEST(Schedule, BadOptionsAreRefused) {
  EXPECT_THROW(Schedule({.peak = NAN, .steps = 5}), Error);
  EXPECT_THROW(Schedule({.peak = -1, .steps = 5}), Error);
  EXPECT_THROW(Schedule({.peak = 1, .steps = 0}), Error);
  EXPECT_THROW(Schedule({.peak = 1, .steps = 5, .warmup_steps = 6}), Error);
  EXPECT_THROW(Schedule({.peak = 1, .steps = 5, .warmup_steps = -1}), Error);
  EXPECT_THROW(Schedule({.peak = 1, .steps = 5, .min_ratio = 1.5}), Error);
  EXPECT_THROW(Schedule({.peak = 1, .steps = 5, .warmup_ratio = NAN}), Error);
  EXPECT_THROW(Schedule({.peak = 1, .steps = 5, .warmup_steps = 1, .warmup_ratio = 0.5}), Error);
}

TEST(Schedule, NamesAreThoseOfTheCommandLine) {
  EXPECT_EQ(schedule_named("cosine"), ScheduleKind::kCosine);
  EXPECT_EQ(schedule_named("linear"), ScheduleKind::kLinear);
  EXPECT_EQ(schedule_named("constant"), ScheduleKind::kConstant);
  EXPECT_EQ(schedule_named("polynomial"), std::nullopt);
}

}  // namespace
}  // namespace strata::train
