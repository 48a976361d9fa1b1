// SPDX-License-Identifier: Apache-2.0
// Context ranks on threads: each has a part of every sequence, and what they add up to is what one
// rank computes, but for the order of sums.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/plan/verifier.h"
#include "tests/support/seeds.h"
#include "tests/support/small_run.h"
#include "tests/support/temporary_directory.h"

namespace strata {
namespace {

class Context : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.directory = directory_.path();
    options_.backend = &kernels::ref_backend();
  }

  // A run of sequences in parts, on a mesh that may also have tensor ranks, shards and copies. The
  // copies may divide the context ranks.
  plan::PlanInput input_of(test::Draw& draw, const model::ModelSpec& whole, int context,
                           int tensor) {
    plan::PlanInput input = test::random_input(draw, whole, context * tensor);
    input.mesh.tensor = tensor;
    input.mesh.context = context;
    if (draw.coin()) input.mesh.world *= 2;
    if (draw.coin()) input.mesh.replicate = 2;
    if (draw.coin()) input.mesh.node_ranks = 2;
    input.shape.length = 2 * draw.between(1, 16 / context);
    input.shape.context.ranks = context;
    options_.clip = input.mode == plan::OptimizerMode::kDeferred ? 0.5 : 0;
    options_.overlaps = draw.coin();
    return input;
  }

  // Heads that context ranks can swap, of each tensor rank.
  static void become_swappable(test::Draw& draw, int context, int tensor,
                               model::Architecture& architecture) {
    architecture.kv_heads = context * tensor * draw.between(1, 2);
    architecture.heads = architecture.kv_heads * draw.between(1, 2);
  }

  static plan::Placement placement_of(test::Draw& draw, const plan::PlanInput& input) {
    model::ModelSpec slice = model::tensor_slice(*input.spec, {0, input.mesh.tensor});
    model::assign_offsets(slice, input.mesh.shards());
    plan::PlanInput of_slice = input;
    of_slice.spec = &slice;
    return test::random_placement(draw, of_slice);
  }

  // The same batch on one rank.
  static plan::PlanInput alone(const plan::PlanInput& input) {
    plan::PlanInput one = input;
    one.mesh = {};
    one.shape.rows *= input.mesh.batch_ranks();
    one.shape.length = input.shape.whole_length();
    one.shape.context = {};
    one.shape.swaps_heads = false;
    one.device.discrete = false;
    return one;
  }

  void expect_losses_of_one_rank(test::Draw& draw, model::Architecture architecture, int context,
                                 int tensor, bool swaps_heads) {
    if (swaps_heads) become_swappable(draw, context, tensor, architecture);
    const model::ModelSpec whole = test::random_spec_of(draw, architecture, 1, true);
    plan::PlanInput input = input_of(draw, whole, context, tensor);
    input.recipe = Recipe::kFp32;
    input.shape.swaps_heads = swaps_heads;
    const test::RunResult result = small_run_on_ranks(input, {placement_of(draw, input)}, options_);
    const plan::PlanInput one = alone(input);
    test::expect_losses_near(result, small_run(one, plan::smallest_placement(one), options_));
  }

  const test::TemporaryDirectory directory_;
  test::RunOptions options_;
};

TEST_F(Context, RanksHaveTheLossesOfOneRank) {
  // With less, and in more steps, rounding decides on the sign of a step where a gradient is 0.
  options_.eps = 1e-4;
  for (uint64_t seed = 1; seed <= test::seeds(16); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(600 + seed);
    const int context = draw.coin() ? 2 : 4;
    const int tensor = draw.below(3) == 0 ? 2 : 1;
    expect_losses_of_one_rank(draw, test::sliceable_architecture(draw, tensor, false), context,
                              tensor, seed % 2 == 0);
  }
}

TEST_F(Context, RanksOfEachFamilyHaveTheLossesOfOneRank) {
  options_.eps = 1e-4;
  uint64_t seed = 700;
  for (const model::Family& family : model::families()) {
    for (const bool swaps : {false, true}) {
      SCOPED_TRACE(std::string(family.model_type) + (swaps ? ", heads" : ", keys"));
      const bool tied = ++seed / 2 % 2 == (swaps ? 1 : 0);
      test::Draw draw(seed);
      model::Architecture architecture = test::random_architecture(draw);
      test::become_family(draw, family, architecture);
      architecture.tied = tied;
      expect_losses_of_one_rank(draw, architecture, tied ? 2 : 4, 1, swaps);
    }
  }
}

TEST_F(Context, BitsDependOnTheMeshAlone) {
  for (uint64_t seed = 1; seed <= test::seeds(4); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(800 + seed);
    const int tensor = draw.coin() ? 2 : 1;
    model::Architecture architecture = test::sliceable_architecture(draw, tensor, false);
    if (seed % 2 == 0) become_swappable(draw, 2, tensor, architecture);
    const model::ModelSpec whole = test::random_spec_of(draw, architecture, 1, true);
    plan::PlanInput input = input_of(draw, whole, 2, tensor);
    input.shape.swaps_heads = seed % 2 == 0;
    input.device.discrete = false;
    std::optional<test::RunResult> expected;
    for (int stage = 0; stage <= 3; ++stage) {
      input.mesh.zero_stage = stage;
      options_.resume_after = stage == 2 ? 2 : 0;
      const test::RunResult result =
          small_run_on_ranks(input, {placement_of(draw, input)}, options_);
      if (!expected) expected = result;
      EXPECT_EQ(result, *expected) << "stage " << stage;
    }
  }
}

// A device as GPUs are: attention takes whole sequences alone, and interiors are narrow.
TEST_F(Context, RanksSwapHeadsOnADeviceThatTakesNoParts) {
  options_.eps = 1e-4;
  for (uint64_t seed = 1; seed <= test::seeds(4); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(950 + seed);
    model::Architecture architecture = test::random_architecture(draw);
    become_swappable(draw, 2, 1, architecture);
    const model::ModelSpec whole = test::random_spec_of(draw, architecture, 1, false);
    plan::PlanInput input = input_of(draw, whole, 2, 1);
    input.recipe = Recipe::kBf16;
    input.device.discrete = true;
    input.device.contexts = false;
    input.device.kernels = kernels::KernelSet::kRef;
    input.device.interior = DType::kBF16;
    EXPECT_THROW(plan::smallest_placement(input), Error) << "keys of parts";
    input.shape.swaps_heads = true;
    const test::RunResult result = small_run_on_ranks(input, {placement_of(draw, input)}, options_);
    plan::PlanInput one = alone(input);
    one.device = {};
    const test::RunResult expected = small_run(one, plan::smallest_placement(one), options_);
    EXPECT_NEAR(result.losses[0], expected.losses[0], 1.0 / 256);
    for (size_t i = 1; i < expected.losses.size(); ++i) {
      EXPECT_NEAR(result.losses[i], expected.losses[i], 0.2) << "step " << i + 1;
    }
  }
}

// The fast kernels have tiles, which must not reach over the ends of pieces.
TEST_F(Context, RanksHaveTheLossesOfOneRankWithFastKernels) {
  options_.backend = &kernels::cpu_backend();
  options_.threads = 2;
  options_.steps = 2;
  options_.eps = 1e-4;
  for (const int64_t length : {150, 154, 256, 260}) {  // with 154 and 260 ranks swap heads
    SCOPED_TRACE(length);
    test::Draw draw(900 + static_cast<uint64_t>(length));
    model::Architecture architecture = test::random_architecture(draw);
    const bool swaps = length == 154 || length == 260;
    if (swaps) become_swappable(draw, 2, 1, architecture);
    architecture.max_position = 600;
    architecture.window = length < 200 ? 0 : 90;
    const model::ModelSpec whole = test::random_spec_of(draw, architecture, 1, false);
    plan::PlanInput input = input_of(draw, whole, 2, 1);
    input.recipe = Recipe::kFp32;
    input.shape.length = length;
    input.shape.documents = length > 200;
    input.shape.swaps_heads = swaps;
    const test::RunResult result = small_run_on_ranks(input, {placement_of(draw, input)}, options_);
    const plan::PlanInput one = alone(input);
    const test::RunResult expected = small_run(one, plan::smallest_placement(one), options_);
    for (size_t i = 0; i < expected.losses.size(); ++i) {
      EXPECT_NEAR(result.losses[i] / expected.losses[i], 1.0, 1e-5) << "step " << i + 1;
    }
  }
}

}  // namespace
}  // namespace strata
