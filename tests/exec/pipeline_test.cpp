// SPDX-License-Identifier: Apache-2.0
// Pipeline parallelism on threads: stages of any number, windows and order give the bits of one
// rank, wherever the state lies.
#include <gtest/gtest.h>

#include "tests/support/seeds.h"
#include "tests/support/small_run.h"
#include "tests/support/temporary_directory.h"

namespace strata {
namespace {

class Pipeline : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.directory = directory_.path();
    options_.backend = &kernels::ref_backend();
  }

  static model::ModelSpec random_whole(test::Draw& draw, int sections, int tensor) {
    return test::random_spec_of(draw, test::stageable_architecture(draw, sections, tensor), 1,
                                true);
  }

  plan::PlanInput input_of(test::Draw& draw, const model::ModelSpec& whole, int stages) {
    plan::PlanInput input = test::random_input(draw, whole, stages);
    test::pass_in_windows(draw, input);
    if (stages == 1) input.windows.order = plan::PipelineOrder::kAllForward;
    input.mesh.pipeline = stages;
    options_.clip = input.mode == plan::OptimizerMode::kDeferred ? 0.5 : 0;
    options_.overlaps = draw.coin();
    options_.resume_after = draw.coin() ? 2 : 0;
    return input;
  }

  // Half of the runs have one section a rank.
  static int laps_of(uint64_t seed) {
    return seed % 2 == 1 ? 1 : 2 + static_cast<int>(seed / 2 % 2);
  }

  // A placement for each rank.
  static std::vector<plan::Placement> placements_of(test::Draw& draw, const plan::PlanInput& input,
                                                    const test::MeshState& state) {
    std::vector<plan::Placement> placements;
    for (int rank = 0; rank < input.mesh.world; ++rank) {
      plan::PlanInput own = input;
      own.mesh.rank = rank;
      own.spec = &state.slices[test::MeshState::slice_of(own.mesh)];
      const bool first = rank % input.mesh.stage_ranks() == 0;
      placements.push_back(first ? test::random_placement(draw, own) : placements.back());
    }
    return placements;
  }

  test::RunResult run(test::Draw& draw, const plan::PlanInput& input, int laps) {
    test::MeshState state(input, laps);
    return small_run_on_ranks(input, placements_of(draw, input, state), options_, state);
  }

  const test::TemporaryDirectory directory_;
  test::RunOptions options_;
};

TEST_F(Pipeline, StagesHaveTheBitsOfOneRank) {
  for (uint64_t seed = 1; seed <= test::seeds(30); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(12000 + seed);
    const int stages = static_cast<int>(draw.between(2, 4));
    const int laps = laps_of(seed);
    const model::ModelSpec whole = random_whole(draw, stages * laps, 1);
    const plan::PlanInput input = input_of(draw, whole, stages);
    const test::RunResult result = run(draw, input, laps);
    plan::PlanInput alone = input;
    alone.mesh = {};
    alone.windows = {};
    alone.device.discrete = false;
    const test::RunResult expected = small_run(alone, plan::smallest_placement(alone), options_);
    EXPECT_EQ(result, expected);
    EXPECT_EQ(result.bytes_read, result.bytes_verified);
  }
}

// A model that is not divided: the windows pass it in turn, also where head and embedding share a
// matrix, on a device, and over shards and copies.
TEST_F(Pipeline, WindowsOfOneStageHaveTheBitsOfOneWindow) {
  for (uint64_t seed = 1; seed <= test::seeds(40); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(14000 + seed);
    const model::ModelSpec whole = random_whole(draw, 1, 1);
    const int ranks = draw.coin() ? 1 : 2;
    plan::PlanInput input = input_of(draw, whole, 1);
    input.mesh.world = ranks;
    input.mesh.replicate = ranks == 2 && draw.coin() ? 2 : 1;
    plan::PlanInput flat = input;
    flat.windows = {};
    flat.device.discrete = false;
    const test::RunResult result = run(draw, input, 1);
    EXPECT_EQ(result, run(draw, flat, 1));
    EXPECT_EQ(result.bytes_read, result.bytes_verified);
  }
}

TEST_F(Pipeline, StagesOfMeshesHaveTheBitsOfThatMesh) {
  for (uint64_t seed = 1; seed <= test::seeds(12); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(13000 + seed);
    const int tensor = draw.coin() ? 1 : 2;
    const int laps = laps_of(seed);
    model::Architecture architecture = test::stageable_architecture(draw, 2 * laps, tensor);
    // Both do not go with norms over all heads.
    const bool norms_all = architecture.block.qk_norm == model::QkNorm::kProjection;
    const int context = draw.below(3) == 0 && !(norms_all && tensor > 1) ? 2 : 1;
    if (context > 1) {
      architecture.kv_heads = 2 * tensor;
      architecture.heads = 4 * tensor;
    }
    const model::ModelSpec whole = test::random_spec_of(draw, architecture, 1, true);
    plan::PlanInput input = input_of(draw, whole, 2);
    input.device.discrete = false;
    input.mesh.tensor = tensor;
    input.mesh.replicate = tensor == 2 || draw.coin() ? 1 : 2;
    const int data_ranks = context * input.mesh.replicate * static_cast<int>(draw.between(1, 2));
    input.mesh.world = data_ranks * tensor;
    input.mesh.context = context;
    input.shape.context.ranks = context;
    input.shape.length = 2 * draw.between(2, 8);
    input.shape.swaps_heads = context > 1 && draw.coin();
    plan::PlanInput flat = input;
    input.mesh.world *= 2;
    flat.mesh.pipeline = 1;
    flat.windows = {};
    EXPECT_EQ(run(draw, input, laps), run(draw, flat, 1));
  }
}

TEST_F(Pipeline, WhatCannotBeDividedIsRefused) {
  test::Draw draw(7);
  model::Architecture architecture = test::random_architecture(draw);
  architecture.layers = 3;
  const auto message = [&](int stages, int laps) {
    try {
      model::route_of(model::build_spec(architecture), stages, laps);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(3, 1), "");
  EXPECT_NE(message(4, 1).find("pipeline-ranks: 4: the model has 3 blocks"), std::string::npos);
  EXPECT_NE(message(2, 2).find("pipeline-chunks: 2: the model has 3 blocks"), std::string::npos);
}

}  // namespace
}  // namespace strata
