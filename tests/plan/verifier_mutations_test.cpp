// SPDX-License-Identifier: Apache-2.0
// No random bug of any kind survives, in any of the tiny plans.
#include <gtest/gtest.h>

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
  EXPECT_GE(applied, 8);
}

INSTANTIATE_TEST_SUITE_P(All, VerifierRejectsMutations,
                         testing::Range(0, mutations::kMutationKindCount));

}  // namespace
}  // namespace strata::plan
