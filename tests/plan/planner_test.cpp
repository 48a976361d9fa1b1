// SPDX-License-Identifier: Apache-2.0
// Every plan that the planner makes is accepted by the verifier, for random models, budgets and
// modes.
#include "engine/plan/planner.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/plan/builder.h"
#include "engine/plan/verifier.h"
#include "tests/support/random_runs.h"

namespace strata::plan {
namespace {

std::string first_violation(const VerifyReport& report) {
  if (report.ok()) return "";
  const Violation& v = report.violations.front();
  return std::string(name_of(v.program)) + " op " + std::to_string(v.op) + " " + v.kind + ": " +
         v.text;
}

TEST(Planner, EveryPlacementOfRandomRunsIsAcceptedByTheVerifier) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    test::Draw draw(seed);
    const int world = draw.coin() ? 1 : static_cast<int>(draw.between(2, 4));
    const model::ModelSpec spec = test::random_spec(draw, world, true);
    PlanInput input = test::random_input(draw, spec, world);
    input.mesh.rank = static_cast<int>(draw.below(world));
    const Plan plan = build_plan(input, test::random_placement(draw, input));
    const VerifyReport report = verify(plan, spec);
    ASSERT_TRUE(report.ok()) << "seed " << seed << ": " << first_violation(report);
  }
}

TEST(Planner, EveryCandidateOfARandomBudgetFitsAndIsAccepted) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    test::Draw draw(1000 + seed);
    const model::ModelSpec spec = test::random_spec(draw, 1, false);
    PlanInput input = test::random_input(draw, spec, 1);
    const auto least = bytes_of(input, smallest_placement(input));
    input.host_budget = least[1] + static_cast<int64_t>(draw.uniform() * 4e6);
    input.device_budget = least[0] + static_cast<int64_t>(draw.uniform() * 2e6);
    for (const Candidate& candidate : candidates(input, {})) {
      const Plan plan = build_plan(input, candidate.placement);
      EXPECT_LE(plan.arenas.bytes[1], input.host_budget) << candidate.name;
      const VerifyReport report = verify(plan, spec);
      ASSERT_TRUE(report.ok()) << "seed " << seed << " " << candidate.name << ": "
                               << first_violation(report);
    }
  }
}

TEST(Planner, ABudgetBelowTheSmallestPlacementIsRefusedWithWhatItNeeds) {
  test::Draw draw(5);
  const model::ModelSpec spec = test::random_spec(draw, 1, false);
  PlanInput input = test::random_input(draw, spec, 1);
  input.discrete = false;
  const auto least = bytes_of(input, smallest_placement(input));
  input.host_budget = least[1] - 1;
  try {
    make_plan(input, {});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit);
    EXPECT_NE(std::string(error.what()).find("host memory: needs at least"), std::string::npos)
        << error.what();
  }
  input.host_budget = least[1];
  EXPECT_NO_THROW(make_plan(input, {}));
}

}  // namespace
}  // namespace strata::plan
