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
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    test::Draw draw(7000 + seed);
    const int context = seed > 80 ? 2 : 1;
    const int shards = context * (draw.coin() ? 1 : 2);
    const int tensor = seed % 4 == 1 ? 2 : 1;
    const int stages = seed % 4 == 2 ? 3 : 1;
    const int laps = seed % 8 == 2 ? 2 : 1;
    const int stage = static_cast<int>(draw.below(stages));
    const model::ModelSpec spec =
        seed % 4 == 0 ? test::random_encoder_decoder(draw, shards)
        : tensor > 1  ? test::random_slice(draw, {0, tensor}, shards, context == 1)
        : stages > 1  ? test::random_stage(draw, stages, laps, stage, shards)
                      : test::random_spec(draw, shards, true);
    PlanInput input = test::random_input(draw, spec, shards * tensor * stages);
    if (stages > 1) test::pass_in_windows(draw, input);
    input.mesh.tensor = tensor;
    input.mesh.pipeline = stages;
    input.mesh.rank = stage * shards * tensor + static_cast<int>(draw.below(shards * tensor));
    input.mesh.context = context;
    input.shape.length *= context;
    input.shape.context = input.mesh.context_part();
    const Plan clean = build_plan(input, test::random_placement(draw, input));
    const VerifyReport report = verify(clean, spec);
    ASSERT_TRUE(report.ok()) << "seed " << seed << ": " << report.violations.front().text;
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

// The accesses of an op to values of a kind.
std::vector<Access*> accesses_of(Program& program, const Op& op, ValueKind kind) {
  std::vector<Access*> found;
  for (uint32_t a = op.access_begin; a < op.access_end; ++a) {
    if (program.accesses[a].value.kind == kind) found.push_back(&program.accesses[a]);
  }
  return found;
}

// On a device both lie in one arena, so only their names tell them apart.
TEST(VerifierRejectsMutations, ThatTakeAnInteriorForANorm) {
  test::Draw draw(1);
  model::Architecture architecture = test::random_architecture(draw);
  architecture.layers = 1;
  const model::ModelSpec spec = test::random_spec_of(draw, architecture, 1, false);
  PlanInput input = test::random_input(draw, spec, 1);
  input.device.discrete = true;
  input.mode = OptimizerMode::kDeferred;
  input.micro_batches = 1;
  Placement placement = test::all_in_memory(input);
  test::make_homes(4, draw, input, placement);
  Plan plan = build_plan(input, placement);
  ASSERT_TRUE(verify(plan, spec).ok());
  Program& step = plan.programs[static_cast<size_t>(ProgramName::kStep)];
  Access* norm = nullptr;
  for (const Op& op : step.ops) {
    if (op.kind != OpKind::kDownload) continue;
    for (Access* access : accesses_of(step, op, ValueKind::kNormPartial)) {
      if (access->mode == Mode::kRead && access->value.segment == 1) norm = access;
    }
  }
  ASSERT_NE(norm, nullptr);
  for (const Op& op : step.ops) {
    if (op.kind != OpKind::kBackward || op.segment != 1) continue;
    norm->offset = accesses_of(step, op, ValueKind::kInterior).front()->offset;
  }
  EXPECT_FALSE(verify(plan, spec).ok());
}

}  // namespace
}  // namespace strata::plan
