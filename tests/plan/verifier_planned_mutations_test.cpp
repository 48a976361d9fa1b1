// SPDX-License-Identifier: Apache-2.0
// No random bug survives in plans that the planner makes, for random models, budgets and modes.
#include <gtest/gtest.h>

#include "engine/plan/builder.h"
#include "engine/plan/verifier.h"
#include "tests/plan/mutations.h"
#include "tests/support/encoder_decoder.h"

namespace strata::plan {
namespace {

TEST(VerifierRejectsMutations, OfPlannedRuns) {
  std::array<int, mutations::kMutationKindCount> applied = {};
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    test::Draw draw(7000 + seed);
    const int world = draw.coin() ? 1 : 2;
    const model::ModelSpec spec = seed % 3 == 0 ? test::random_encoder_decoder(draw, world)
                                                : test::random_spec(draw, world, true);
    PlanInput input = test::random_input(draw, spec, world);
    input.mesh.rank = static_cast<int>(draw.below(world));
    const Plan clean = build_plan(input, test::random_placement(draw, input));
    ASSERT_TRUE(verify(clean, spec).ok()) << "seed " << seed;
    for (int kind = 0; kind < mutations::kMutationKindCount; ++kind) {
      Plan plan = clean;
      if (!mutations::mutate(plan, static_cast<mutations::MutationKind>(kind), seed)) continue;
      ++applied[kind];
      EXPECT_FALSE(verify(plan, spec).ok()) << "seed " << seed << " kind " << kind;
    }
  }
  for (int kind = 0; kind < mutations::kMutationKindCount; ++kind) {
    EXPECT_GT(applied[kind], 5) << "kind " << kind;
  }
}

}  // namespace
}  // namespace strata::plan
