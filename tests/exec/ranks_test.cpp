// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process: ZeRO stages are group sizes, so they have the same bits; other
// worlds have the same losses but for the order of sums.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/seeds.h"
#include "tests/support/small_run.h"
#include "tests/support/temporary_directory.h"

namespace strata {
namespace {

class Ranks : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.directory = directory_.path();
    options_.backend = &kernels::ref_backend();
  }
  const test::TemporaryDirectory directory_;
  test::RunOptions options_;
};

constexpr Payload kPayloads[] = {Payload::kBF16, Payload::kF32, Payload::kMxInt8};

// Blocks of 8 bits pass through the host alone.
void send_gradients_as(Payload payload, plan::PlanInput& input) {
  input.mesh.reduce_dtype = payload;
  if (payload == Payload::kMxInt8) input.device.peers = false;
}

TEST_F(Ranks, StagesOfOneMeshAreBitEqualWhereverTheStateLies) {
  for (uint64_t seed = 1; seed <= test::seeds(4); ++seed) {
    test::Draw draw(seed);
    const int world = static_cast<int>(draw.between(2, 4));
    const model::ModelSpec spec = test::random_spec(draw, world, true);
    plan::PlanInput input = test::random_input(draw, spec, world);
    send_gradients_as(kPayloads[seed % std::size(kPayloads)], input);
    input.mesh.node_ranks = world % 2 == 0 ? world / 2 : 0;
    options_.clip = input.mode == plan::OptimizerMode::kDeferred ? 0.5 : 0;
    std::optional<test::RunResult> expected;
    for (int stage = 0; stage <= 3; ++stage) {
      input.mesh.zero_stage = stage;
      options_.overlaps = draw.coin();
      const auto placement =
          stage % 2 == 0 ? plan::smallest_placement(input) : test::random_placement(draw, input);
      const test::RunResult result = small_run_on_ranks(input, {placement}, options_);
      if (!expected) expected = result;
      ASSERT_EQ(result.losses, expected->losses) << "seed " << seed << " stage " << stage;
      ASSERT_EQ(result.norms, expected->norms) << "seed " << seed << " stage " << stage;
      ASSERT_EQ(result.hash, expected->hash) << "seed " << seed << " stage " << stage;
      ASSERT_EQ(result.eval_loss, expected->eval_loss) << "seed " << seed << " stage " << stage;
    }
  }
}

// What ranks sum has another order, so masters differ in their last bits; in bf16 some of these
// round to another weight.
class RanksIn : public Ranks, public testing::WithParamInterface<Recipe> {};

TEST_P(RanksIn, OneTwoAndFourHaveTheLossesOfTheSameGlobalBatch) {
  const double tolerance = GetParam() == Recipe::kFp32 ? 1e-5 : 5e-4;
  options_.steps = 20;
  for (uint64_t seed = 1; seed <= test::seeds(2); ++seed) {
    test::Draw draw(40 + seed);
    const model::Architecture architecture = test::random_architecture(draw);
    std::vector<double> expected;
    for (int world : {1, 2, 4}) {
      model::ModelSpec spec = model::build_spec(architecture);
      model::assign_offsets(spec, world);
      plan::PlanInput input;
      input.spec = &spec;
      input.recipe = GetParam();
      input.shape = {4 / world, 8};
      input.micro_batches = 2;
      input.mesh = {.world = world, .rank = 0, .zero_stage = 3};
      input.nvme_budget = int64_t{1} << 40;
      const plan::Placement placement = plan::smallest_placement(input);
      const test::RunResult result = world == 1 ? small_run(input, placement, options_)
                                                : small_run_on_ranks(input, {placement}, options_);
      if (world == 1) expected = result.losses;
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(result.losses[i] / expected[i], 1.0, tolerance)
            << world << " ranks, step " << i + 1;
      }
    }
  }
}

// All stages, with everything in memory, some of it, and as little as possible.
TEST_F(Ranks, OfAnyNumberStageAndPlaceHaveTheLossesOfOne) {
  constexpr int kRows = 12;
  options_.steps = 30;
  options_.clip = 0.5;
  options_.eps = 1e-5;  // with less, rounding decides on a step where a gradient is nearly 0
  test::Draw draw(57);
  const model::Architecture architecture = test::random_architecture(draw);
  std::vector<double> expected;
  for (const int world : {1, 2, 3, 4}) {
    model::ModelSpec spec = model::build_spec(architecture);
    model::assign_offsets(spec, world);
    plan::PlanInput input;
    input.spec = &spec;
    input.recipe = Recipe::kFp32;
    input.shape = {kRows / world, 8};
    input.nvme_budget = int64_t{1} << 40;
    if (world == 1) {
      expected = small_run(input, test::all_in_memory(input), options_).losses;
      continue;
    }
    for (int stage = 0; stage <= 3; ++stage) {
      input.mesh = {.world = world, .zero_stage = stage};
      if (world == 4) input.mesh.node_ranks = 2;
      for (const plan::Placement& placement :
           {test::all_in_memory(input), test::random_placement(draw, input),
            plan::smallest_placement(input)}) {
        const test::RunResult result = small_run_on_ranks(input, {placement}, options_);
        ASSERT_EQ(result.losses.size(), expected.size());
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_NEAR(result.losses[i] / expected[i], 1.0, 1e-5)
              << world << " ranks, stage " << stage << ", step " << i + 1;
        }
      }
    }
  }
}

// Devices that send each other memory, and devices whose values pass through the host.
TEST_F(Ranks, HaveTheSameBitsWhoeverExchangesWhatLiesOnDevices) {
  for (uint64_t seed = 1; seed <= test::seeds(6); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(130 + seed);
    const int world = static_cast<int>(draw.between(2, 4));
    const model::ModelSpec spec = test::random_spec(draw, world, true);
    plan::PlanInput input = test::random_input(draw, spec, world);
    input.mesh.node_ranks = seed % 3 == 0 && world % 2 == 0 ? 2 : 0;
    input.mesh.reduce_dtype = seed % 2 == 0 ? Payload::kBF16 : Payload::kF32;
    input.device.discrete = true;
    options_.clip = input.mode == plan::OptimizerMode::kDeferred ? 0.5 : 0;
    const plan::Placement placement = test::random_placement(draw, input);
    input.device.peers = false;
    const test::RunResult by_host = small_run_on_ranks(input, {placement}, options_);
    input.device.peers = true;
    EXPECT_EQ(small_run_on_ranks(input, {placement}, options_), by_host);
  }
}

plan::PlanInput hybrid(const model::ModelSpec& spec, test::Draw& draw) {
  plan::PlanInput input = test::random_input(draw, spec, 4);
  input.mesh.replicate = 2;
  input.mesh.node_ranks = 2;  // a copy on each of two machines
  return input;
}

// Two copies of two ranks each: on the host and on devices, with homes there.
TEST_F(Ranks, HybridShardingHasTheLossesOfOneRankWithTheSameBatch) {
  options_.steps = 8;
  options_.eps = 1e-4;  // with less, rounding decides on the sign of a step where a gradient is 0
  for (uint64_t seed = 1; seed <= test::seeds(4); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(70 + seed);
    const model::Architecture architecture = test::random_architecture(draw);
    model::ModelSpec spec = model::build_spec(architecture);
    model::assign_offsets(spec, 2);
    plan::PlanInput input = hybrid(spec, draw);
    input.recipe = Recipe::kFp32;
    input.shape = {1, 8};
    input.device.discrete = seed % 2 == 0;
    options_.clip = input.mode == plan::OptimizerMode::kDeferred ? 0.5 : 0;
    const test::RunResult result =
        small_run_on_ranks(input, {test::random_placement(draw, input)}, options_);
    model::ModelSpec whole = model::build_spec(architecture);
    plan::PlanInput alone = input;
    alone.spec = &whole;
    alone.mesh = {};
    alone.shape.rows = 4;
    alone.device.discrete = false;
    const test::RunResult expected = small_run(alone, plan::smallest_placement(alone), options_);
    for (size_t i = 0; i < expected.losses.size(); ++i) {
      EXPECT_NEAR(result.losses[i] / expected.losses[i], 1.0, 1e-5) << "step " << i + 1;
    }
    EXPECT_NEAR(result.eval_loss / expected.eval_loss, 1.0, 1e-5);
  }
}

TEST_F(Ranks, StagesOfAHybridMeshAreBitEqualAndResume) {
  for (uint64_t seed = 1; seed <= test::seeds(3); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(90 + seed);
    const model::ModelSpec spec = test::random_spec(draw, 2, true);
    plan::PlanInput input = hybrid(spec, draw);
    send_gradients_as(kPayloads[seed % std::size(kPayloads)], input);
    options_.clip = input.mode == plan::OptimizerMode::kDeferred ? 0.5 : 0;
    std::optional<test::RunResult> expected;
    for (int stage = 0; stage <= 3; ++stage) {
      input.mesh.zero_stage = stage;
      options_.resume_after = stage == 2 ? 2 : 0;
      const test::RunResult result =
          small_run_on_ranks(input, {test::random_placement(draw, input)}, options_);
      if (!expected) expected = result;
      ASSERT_EQ(result.losses, expected->losses) << "stage " << stage;
      ASSERT_EQ(result.norms, expected->norms) << "stage " << stage;
      ASSERT_EQ(result.hash, expected->hash) << "stage " << stage;
    }
  }
}

TEST_F(Ranks, GradientsRoundedOnTheirWayChangeBitsAndHardlyLosses) {
  options_.steps = 8;
  test::Draw draw(110);
  const model::ModelSpec spec = test::random_spec(draw, 2, true);
  plan::PlanInput input = hybrid(spec, draw);
  input.recipe = Recipe::kFp32;
  const plan::Placement placement = test::random_placement(draw, input);
  const test::RunResult exact = small_run_on_ranks(input, {placement}, options_);
  for (const auto& [payload, off] :
       {std::pair(Payload::kBF16, 1e-3), std::pair(Payload::kMxInt8, 3e-3)}) {
    send_gradients_as(payload, input);
    const test::RunResult rounded = small_run_on_ranks(input, {placement}, options_);
    EXPECT_NE(rounded.hash, exact.hash);
    for (size_t i = 0; i < exact.losses.size(); ++i) {
      EXPECT_NEAR(rounded.losses[i] / exact.losses[i], 1.0, off)
          << name_of(payload) << ", step " << i + 1;
    }
  }
}

std::string recipe_name(const testing::TestParamInfo<Recipe>& info) {
  return info.param == Recipe::kFp32 ? "fp32" : "bf16";
}
INSTANTIATE_TEST_SUITE_P(Recipes, RanksIn, testing::Values(Recipe::kFp32, Recipe::kBf16),
                         recipe_name);

}  // namespace
}  // namespace strata
