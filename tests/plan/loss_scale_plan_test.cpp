// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "engine/plan/builder.h"
#include "engine/plan/planner.h"
#include "engine/plan/verifier.h"
#include "tests/support/random_runs.h"

namespace strata::plan {
namespace {

// The loss of fp16 is scaled by what the last decision says.
TEST(LossScalePlan, ALossThatDoesNotReadItsScaleIsFound) {
  test::Draw draw(1);
  const model::ModelSpec spec = test::random_spec(draw, 1, false);
  PlanInput input = test::random_input(draw, spec, 1);
  input.recipe = Recipe::kFp16;
  input.mode = OptimizerMode::kInBackward;
  EXPECT_FALSE(verify(build_plan(input, smallest_placement(input)), spec).ok());
  input.mode = OptimizerMode::kDeferred;
  Plan plan = build_plan(input, smallest_placement(input));
  ASSERT_TRUE(verify(plan, spec).ok());
  Program& step = plan.programs[static_cast<size_t>(ProgramName::kStep)];
  const auto loss = std::ranges::find(step.ops, OpKind::kLoss, &Op::kind);
  ASSERT_NE(loss, step.ops.end());
  const auto begin = step.accesses.begin() + loss->access_begin;
  const auto end = step.accesses.begin() + loss->access_end;
  const auto read = std::find_if(
      begin, end, [](const Access& access) { return access.value.kind == ValueKind::kDecision; });
  ASSERT_NE(read, end);
  std::rotate(read, read + 1, end);
  --loss->access_end;
  const VerifyReport report = verify(plan, spec);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.violations.front().kind, "predicate");
}

}  // namespace
}  // namespace strata::plan
