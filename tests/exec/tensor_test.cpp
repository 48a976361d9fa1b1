// SPDX-License-Identifier: Apache-2.0
// Tensor parallelism on threads: every rank has its slice of each block, and what they add up to is
// what one rank computes, but for the order of sums.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/seeds.h"
#include "tests/support/small_run.h"
#include "tests/support/temporary_directory.h"

namespace strata {
namespace {

class Tensor : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.directory = directory_.path();
    options_.backend = &kernels::ref_backend();
  }

  // A run on a mesh with tensor ranks, with the state anywhere.
  plan::PlanInput input_of(test::Draw& draw, const model::ModelSpec& whole, int tensor) {
    plan::PlanInput input = test::random_input(draw, whole, tensor);
    input.mesh.tensor = tensor;
    input.mesh.world *= static_cast<int>(draw.between(1, 2));
    if (draw.coin()) {
      input.mesh.replicate = 2;
      input.mesh.world *= 2;
    }
    options_.clip = input.mode == plan::OptimizerMode::kDeferred ? 0.5 : 0;
    options_.overlaps = draw.coin();
    return input;
  }

  // Placements say where segments and chunks of a slice lie.
  static plan::Placement placement_of(test::Draw& draw, const plan::PlanInput& input) {
    model::ModelSpec slice = model::tensor_slice(*input.spec, {0, input.mesh.tensor});
    model::assign_offsets(slice, input.mesh.shards());
    plan::PlanInput of_slice = input;
    of_slice.spec = &slice;
    return test::random_placement(draw, of_slice);
  }

  // One rank of the cpu with the same batch.
  static plan::PlanInput alone(plan::PlanInput input) {
    input.shape.rows *= input.mesh.data_ranks();
    input.mesh = {};
    input.device.discrete = false;
    input.device.interior = DType::kF32;
    return input;
  }

  void expect_losses_of_one_rank(test::Draw& draw, const plan::PlanInput& input) {
    const test::RunResult result = small_run_on_ranks(input, {placement_of(draw, input)}, options_);
    const plan::PlanInput one = alone(input);
    test::expect_losses_near(result, small_run(one, plan::smallest_placement(one), options_));
  }

  const test::TemporaryDirectory directory_;
  test::RunOptions options_;
};

TEST_F(Tensor, RanksHaveTheLossesOfOneRank) {
  options_.steps = 3;
  // With less, and in more steps, rounding decides on the sign of a step where a gradient is 0.
  options_.eps = 1e-3;
  for (uint64_t seed = 1; seed <= test::seeds(12); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(300 + seed);
    const int tensor = draw.coin() ? 2 : 4;
    const model::ModelSpec whole =
        test::random_spec_of(draw, test::sliceable_architecture(draw, tensor, false), 1, true);
    plan::PlanInput input = input_of(draw, whole, tensor);
    input.recipe = Recipe::kFp32;
    expect_losses_of_one_rank(draw, input);
  }
}

TEST_F(Tensor, RanksOfEachFamilyHaveTheLossesOfOneRank) {
  options_.steps = 2;
  options_.eps = 1e-4;
  uint64_t seed = 380;
  for (const model::Family& family : model::families()) {
    for (const int tensor : {2, 4}) {
      SCOPED_TRACE(std::string(family.model_type) + ", " + std::to_string(tensor) + " ranks");
      test::Draw draw(++seed);
      const model::ModelSpec whole = test::random_spec_of(
          draw, test::sliceable_architecture_of(draw, family, tensor), 1, true);
      plan::PlanInput input = input_of(draw, whole, tensor);
      input.recipe = Recipe::kFp32;
      expect_losses_of_one_rank(draw, input);
    }
  }
}

// As GPUs are: what is inside a segment is narrow, but for what ranks add.
TEST_F(Tensor, RanksOfADeviceWithInteriorsInBf16HaveAboutTheLossesOfOneRank) {
  options_.steps = 2;
  options_.eps = 1e-4;
  uint64_t seed = 450;
  for (const model::Family& family : model::families()) {
    SCOPED_TRACE(family.model_type);
    test::Draw draw(++seed);
    const model::ModelSpec whole =
        test::random_spec_of(draw, test::sliceable_architecture_of(draw, family, 2), 1, true);
    plan::PlanInput input = input_of(draw, whole, 2);
    input.recipe = Recipe::kBf16;
    input.device.discrete = true;
    input.device.kernels = kernels::KernelSet::kRef;
    input.device.interior = DType::kBF16;
    const test::RunResult result = small_run_on_ranks(input, {placement_of(draw, input)}, options_);
    const plan::PlanInput one = alone(input);
    const test::RunResult expected = small_run(one, plan::smallest_placement(one), options_);
    EXPECT_NEAR(result.losses[0], expected.losses[0], 1.0 / 256);
    EXPECT_NEAR(result.losses[1], expected.losses[1], 0.2);
  }
}

// The last ranks have fewer rows than the first, or none.
TEST_F(Tensor, RanksNeedNotDivideTheTokens) {
  options_.steps = 2;
  options_.eps = 1e-4;
  int seed = 0;
  for (const int64_t length : {2, 3, 5, 7, 9}) {
    for (const int tensor : {2, 4}) {
      SCOPED_TRACE(std::to_string(length) + " tokens, " + std::to_string(tensor) + " ranks");
      test::Draw draw(static_cast<uint64_t>(350 + seed++));
      const model::ModelSpec whole =
          test::random_spec_of(draw, test::sliceable_architecture(draw, tensor), 1, true);
      plan::PlanInput input = test::random_input(draw, whole, tensor);
      input.mesh.tensor = input.mesh.world = tensor;
      input.shape = {.rows = 1, .length = length};
      input.recipe = Recipe::kFp32;
      expect_losses_of_one_rank(draw, input);
    }
  }
}

TEST_F(Tensor, BitsDependOnTheMeshAlone) {
  for (uint64_t seed = 1; seed <= test::seeds(4); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(400 + seed);
    const model::ModelSpec whole =
        test::random_spec_of(draw, test::sliceable_architecture(draw, 2), 1, true);
    plan::PlanInput input = input_of(draw, whole, 2);
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

// They are computed on every rank, from the same bits.
TEST_F(Tensor, WhatIsNotSlicedIsTheSameOnEveryRank) {
  for (uint64_t seed = 1; seed <= test::seeds(4); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(500 + seed);
    const model::ModelSpec whole =
        test::random_spec_of(draw, test::sliceable_architecture(draw, 2), 1, true);
    const plan::PlanInput input = input_of(draw, whole, 2);
    test::MeshState state(input);
    small_run_on_ranks(input, {placement_of(draw, input)}, options_, state);
    int compared = 0;
    for (size_t s = 0; s < whole.segments.size(); ++s) {
      const std::vector<float>& a = state.stores[0].master()[s];
      const std::vector<float>& b = state.stores[1].master()[s];
      for (const model::Parameter& parameter : state.slices[0].segments[s].parameters) {
        if (parameter.frozen) continue;
        const auto begin = a.begin() + parameter.offset;
        const bool equal = std::equal(begin, begin + parameter.numel, b.begin() + parameter.offset);
        EXPECT_EQ(equal, parameter.whole) << parameter.name;
        ++compared;
      }
    }
    EXPECT_GT(compared, 0);
  }
}

TEST_F(Tensor, WhatCannotBeDividedIsRefused) {
  test::Draw draw(7);
  model::Architecture architecture = test::random_architecture(draw);
  architecture.heads = 4;
  architecture.kv_heads = 4;
  architecture.feed_forward = 30;
  const auto message = [&](int ranks) {
    try {
      model::tensor_slice(model::build_spec(architecture), {0, ranks});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(2), "");
  EXPECT_NE(message(4).find("the model has 30 feed-forward columns"), std::string::npos);
  EXPECT_NE(message(3).find("the model has 4 heads"), std::string::npos);
}

}  // namespace
}  // namespace strata
