// SPDX-License-Identifier: Apache-2.0
// What the planner compares large models by: a plan of joined chunks moves the same bytes and takes
// about the same time, and what a placement takes is known without laying it out.
#include "engine/plan/placement_coarse.h"

#include <gtest/gtest.h>

#include "engine/model/architecture.h"
#include "engine/plan/builder.h"
#include "engine/plan/placement.h"
#include "engine/plan/simulator.h"
#include "tests/support/random_runs.h"

namespace strata::plan {
namespace {

TEST(PlacementCoarse, WhatAPlacementTakesIsWhatItsPlanHas) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    test::Draw draw(seed);
    const int world = draw.coin() ? 1 : static_cast<int>(draw.between(2, 4));
    const model::ModelSpec spec = test::random_spec(draw, world, true);
    const PlanInput input = test::random_input(draw, spec, world);
    const Placement placement = test::random_placement(draw, input);
    ASSERT_EQ(bytes_of(input, placement), build_plan(input, placement).arenas.bytes)
        << "seed " << seed;
  }
}

// 1.6B parameters in about 800 chunks: state streams through a drive, in places resident.
class PlacementCoarseTest : public testing::Test {
 protected:
  PlacementCoarseTest() {
    model::Architecture at;
    at.model_type = "llama";
    at.layers = 24;
    at.hidden = at.head_size = 2048;
    at.heads = at.kv_heads = 1;
    at.feed_forward = 8192;
    at.vocabulary = 32000;
    at.max_position = 4096;
    spec_ = model::build_spec(at);
    model::assign_offsets(spec_, 1);
    input_.spec = &spec_;
    input_.recipe = Recipe::kBf16;
    input_.shape = {1, 4096};
    input_.micro_batches = 2;
    input_.nvme_budget = int64_t{1} << 50;
    rates_.read_bytes_per_s = 8e9;
    rates_.write_bytes_per_s = 4e9;
    rates_.mixed_bytes_per_s = 6e9;
    rates_.half_duplex = false;
    rates_.io_latency_s = 5e-4;
    rates_.matmul_flops_per_s = 50e12;
    rates_.memory_bytes_per_s = 60e9;
    rates_.cores = 8;
  }

  double step_s(const Plan& plan) const {
    return simulate(plan, ProgramName::kStep, rates_).step_s;
  }

  model::ModelSpec spec_;
  PlanInput input_;
  Rates rates_;
};

TEST_F(PlacementCoarseTest, JoinedChunksMoveTheSameBytesInAboutTheSameTime) {
  const PlacementSearch search(input_);
  const Ground& ground = search.ground();
  ASSERT_GE(ground.layout.chunks.size(), 500u);
  for (const int depth : {0, 1, 4}) {
    for (const double resident : {0.0, 0.4}) {
      SCOPED_TRACE(testing::Message() << "depth " << depth << ", resident " << resident);
      Placement placement = search.smallest();
      for (size_t c = 0; c < placement.state_in_host.size(); ++c) {
        placement.state_in_host[c] =
            static_cast<double>(c) < resident * static_cast<double>(ground.layout.chunks.size());
      }
      search.size_rings(placement, depth);
      const Plan fine = build_program(input_, ground, placement, ProgramName::kStep);
      const CoarsePlacement coarse =
          coarsen(ground, placement, search.streamed(placement).largest, 8);
      const Plan joined = build_program(input_, coarse, ProgramName::kStep);
      EXPECT_LT(2 * joined.program(ProgramName::kStep).ops.size(),
                fine.program(ProgramName::kStep).ops.size());
      const SimulationResult a = simulate(fine, ProgramName::kStep, rates_);
      const SimulationResult b = simulate(joined, ProgramName::kStep, rates_);
      EXPECT_EQ(a.bytes, b.bytes);
      EXPECT_EQ(a.flops, b.flops);
      EXPECT_NEAR(a.step_s, b.step_s, 0.03 * a.step_s);
    }
  }
}

TEST_F(PlacementCoarseTest, OneChunkEachIsTheSamePlan) {
  const PlacementSearch search(input_);
  const Placement placement = search.smallest();
  const CoarsePlacement coarse =
      coarsen(search.ground(), placement, search.streamed(placement).largest, 1);
  EXPECT_EQ(coarse.placement.state_ring, placement.state_ring);
  EXPECT_EQ(step_s(build_program(input_, coarse, ProgramName::kStep)),
            step_s(build_plan(input_, placement)));
}

}  // namespace
}  // namespace strata::plan
