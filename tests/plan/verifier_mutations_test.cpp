// SPDX-License-Identifier: Apache-2.0
// No random bug of any kind survives, in any of the tiny plans.
#include <gtest/gtest.h>

#include "engine/model/external.h"
#include "engine/plan/builder.h"
#include "engine/plan/planner.h"
#include "engine/plan/verifier.h"
#include "tests/plan/mutations.h"
#include "tests/plan/tiny_plans.h"

namespace strata::plan {
namespace {

using mutations::MutationKind;

const tiny::Shape kShapes[] = {
    {},
    {.resident = true},
    {.discrete = true, .tied = true},
    {.frozen = true, .spills_gradients = true},
    {.tied = true, .mode = OptimizerMode::kInBackward, .micro_batches = 3},
    {.frozen = true, .in_source = true},
    {.discrete = true, .frozen = true, .mode = OptimizerMode::kInBackward},
    {.world = 2, .rank = 1},
    {.frozen = true, .in_source = true, .spills_gradients = true, .two_sides = true},
    {.two_sides = true, .mode = OptimizerMode::kInBackward},
};

class VerifierRejectsMutations : public testing::TestWithParam<int> {};

TEST_P(VerifierRejectsMutations, OfThisKind) {
  const MutationKind kind = static_cast<MutationKind>(GetParam());
  int applied = 0;
  for (const tiny::Shape& shape : kShapes) {
    const tiny::Tiny clean = tiny::make(shape);
    ASSERT_TRUE(verify(clean.plan, clean.spec).ok());
    for (uint64_t seed = 0; seed < 8; ++seed) {
      Plan plan = clean.plan;
      if (!mutations::mutate(plan, kind, seed)) continue;
      ++applied;
      EXPECT_FALSE(verify(plan, clean.spec).ok())
          << "shape " << &shape - kShapes << " seed " << seed;
    }
  }
  // One of the shapes has collectives.
  EXPECT_GE(applied, kind == MutationKind::kWrongGroup ? 8 : 24);
}

// The same of a plan for a caller with an order of its own, whose sums leave memory.
TEST_P(VerifierRejectsMutations, OfThisKindInACallersUses) {
  const MutationKind kind = static_cast<MutationKind>(GetParam());
  const model::ModelSpec spec =
      model::external_spec({{"a", {{"w", {9, 9}}}}, {"b", {{"w", {80, 80}}}}, {"c", {{"w", {7}}}}},
                           {{{0}}, {{1}}, {{2, 0}}, {{2, 0}, true}, {{1}, true}, {{0, 1}, true}});
  PlanInput input;
  input.spec = &spec;
  input.nvme_budget = int64_t{1} << 30;
  input.micro_batches = 2;
  const Plan clean = build_plan(input, smallest_placement(input));
  ASSERT_TRUE(verify(clean, spec).ok());
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Plan plan = clean;
    if (!mutations::mutate(plan, kind, seed)) continue;
    EXPECT_FALSE(verify(plan, spec).ok()) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(All, VerifierRejectsMutations,
                         testing::Range(0, mutations::kMutationKindCount));

}  // namespace
}  // namespace strata::plan
