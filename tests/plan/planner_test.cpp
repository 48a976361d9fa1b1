// SPDX-License-Identifier: Apache-2.0
// Every plan that the planner makes is accepted by the verifier, for random models, budgets and
// modes.
#include "engine/plan/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/model/stage.h"
#include "engine/model/tensor_slice.h"
#include "engine/plan/builder.h"
#include "engine/plan/collectives.h"
#include "engine/plan/placement.h"
#include "engine/plan/simulator.h"
#include "engine/plan/verifier.h"
#include "tests/support/encoder_decoder.h"
#include "tests/support/random_runs.h"
#include "tests/support/seeds.h"

namespace strata::plan {
namespace {

std::string first_violation(const VerifyReport& report) {
  if (report.ok()) return "";
  const Violation& v = report.violations.front();
  return std::string(name_of(v.program)) + " op " + std::to_string(v.op) + " " + v.kind + ": " +
         v.text;
}

TEST(Planner, EveryPlacementOfRandomRunsIsAcceptedByTheVerifier) {
  for (uint64_t seed = 1; seed <= test::seeds(200); ++seed) {
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

TEST(Planner, PlansOfAnEncoderAndADecoderAreAccepted) {
  for (uint64_t seed = 1; seed <= test::seeds(60); ++seed) {
    test::Draw draw(7000 + seed);
    const int world = static_cast<int>(draw.between(1, 2));
    const model::ModelSpec spec = test::random_encoder_decoder(draw, world);
    PlanInput input = test::random_input(draw, spec, world);
    const Plan plan = build_plan(input, test::random_placement(draw, input));
    const VerifyReport report = verify(plan, spec);
    ASSERT_TRUE(report.ok()) << "seed " << seed << ": " << first_violation(report);
  }
}

// Copies are shared by as many ranks as the model was cut for.
TEST(Planner, PlansOfHybridMeshesAreAcceptedAndAgree) {
  for (uint64_t seed = 1; seed <= test::seeds(40); ++seed) {
    test::Draw draw(5000 + seed);
    const int shards = static_cast<int>(draw.between(1, 3));
    const int copies = static_cast<int>(draw.between(2, 3));
    const model::ModelSpec spec = test::random_spec(draw, shards, true);
    PlanInput input = test::random_input(draw, spec, shards * copies);
    input.mesh.replicate = copies;
    const Placement placement = test::random_placement(draw, input);
    std::vector<Plan> plans;
    for (int rank = 0; rank < shards * copies; ++rank) {
      input.mesh.rank = rank;
      plans.push_back(build_plan(input, placement));
      const VerifyReport report = verify(plans.back(), spec);
      ASSERT_TRUE(report.ok()) << "seed " << seed << ": " << first_violation(report);
      EXPECT_EQ(hashes_of(plans.back()).collectives, hashes_of(plans.front()).collectives);
    }
    const VerifyReport report = verify_ranks(plans, spec);
    ASSERT_TRUE(report.ok()) << "seed " << seed << ": " << first_violation(report);
  }
}

TEST(Planner, PlansOfMeshesWithTensorRanksAreAcceptedAndAgree) {
  for (uint64_t seed = 1; seed <= test::seeds(60); ++seed) {
    test::Draw draw(9000 + seed);
    const int tensor = draw.coin() ? 2 : 4;
    const int shards = static_cast<int>(draw.between(1, 3));
    const int copies = static_cast<int>(draw.between(1, 2));
    const model::ModelSpec spec = test::random_slice(draw, {0, tensor}, shards);
    PlanInput input = test::random_input(draw, spec, tensor * shards * copies);
    input.mesh.tensor = tensor;
    input.mesh.replicate = copies;
    const Placement placement = test::random_placement(draw, input);
    std::vector<Plan> plans;
    for (int rank = 0; rank < input.mesh.world; ++rank) {
      input.mesh.rank = rank;
      plans.push_back(build_plan(input, placement));
      const VerifyReport report = verify(plans.back(), spec);
      ASSERT_TRUE(report.ok()) << "seed " << seed << ": " << first_violation(report);
      EXPECT_EQ(hashes_of(plans.back()).collectives, hashes_of(plans.front()).collectives);
    }
    const VerifyReport report = verify_ranks(plans, spec);
    ASSERT_TRUE(report.ok()) << "seed " << seed << ": " << first_violation(report);
  }
}

// Copies may divide the ranks that share sequences.
TEST(Planner, PlansOfMeshesWithContextRanksAreAcceptedAndAgree) {
  for (uint64_t seed = 1; seed <= test::seeds(60); ++seed) {
    test::Draw draw(13000 + seed);
    const int context = draw.coin() ? 2 : 4;
    const int tensor = draw.coin() ? 1 : 2;
    const int copies = static_cast<int>(draw.between(1, 2));
    const int shards = context * static_cast<int>(draw.between(1, 2)) / copies;
    const model::ModelSpec spec =
        tensor > 1
            ? test::random_slice(draw, {0, tensor}, shards, false)
            : test::random_spec_of(draw, test::sliceable_architecture(draw, 1), shards, true);
    PlanInput input = test::random_input(draw, spec, tensor * shards * copies);
    input.mesh.tensor = tensor;
    input.mesh.replicate = copies;
    input.mesh.context = context;
    input.shape.length *= 2;
    input.shape.context = input.mesh.context_part();
    const Placement placement = test::random_placement(draw, input);
    std::vector<Plan> plans;
    for (int rank = 0; rank < input.mesh.world; ++rank) {
      input.mesh.rank = rank;
      input.shape.context = input.mesh.context_part();
      plans.push_back(build_plan(input, placement));
      const VerifyReport report = verify(plans.back(), spec);
      ASSERT_TRUE(report.ok()) << "seed " << seed << ": " << first_violation(report);
      EXPECT_EQ(hashes_of(plans.back()).collectives, hashes_of(plans.front()).collectives);
    }
    const VerifyReport report = verify_ranks(plans, spec);
    ASSERT_TRUE(report.ok()) << "seed " << seed << ": " << first_violation(report);
  }
}

// A mesh of stages, each of which shards, copies and tensor ranks may divide again.
TEST(Planner, PlansOfPipelinesAreAcceptedAndAgree) {
  for (uint64_t seed = 1; seed <= test::seeds(80); ++seed) {
    test::Draw draw(11000 + seed);
    const int stages = static_cast<int>(draw.between(2, 4));
    const int laps = static_cast<int>(seed % 3) + 1;
    const int tensor = draw.coin() ? 1 : 2;
    const int shards = static_cast<int>(draw.between(1, 2));
    const int copies = static_cast<int>(draw.between(1, 2));
    const model::ModelSpec whole = model::tensor_slice(
        test::random_spec_of(draw, test::stageable_architecture(draw, stages * laps, tensor), 1,
                             true),
        {0, tensor});
    PlanInput input = test::random_input(draw, whole, stages * tensor * shards * copies);
    test::pass_in_windows(draw, input);
    input.mesh.pipeline = stages;
    input.mesh.tensor = tensor;
    input.mesh.replicate = copies;
    const model::Division division = model::divide(whole, model::route_of(whole, stages, laps),
                                                   input.shape, input.recipe, input.device);
    std::vector<model::ModelSpec> specs;
    for (int stage = 0; stage < stages; ++stage) {
      specs.push_back(model::stage_slice(whole, stage, division));
      model::assign_offsets(specs.back(), shards);
    }
    std::vector<Plan> plans;
    std::optional<Placement> placement;
    for (int rank = 0; rank < input.mesh.world; ++rank) {
      input.mesh.rank = rank;
      input.spec = &specs[input.mesh.stage()];
      if (rank % input.mesh.stage_ranks() == 0) placement = test::random_placement(draw, input);
      plans.push_back(build_plan(input, *placement));
      const VerifyReport report = verify(plans.back(), *input.spec);
      ASSERT_TRUE(report.ok()) << "seed " << seed << " rank " << rank << ": "
                               << first_violation(report);
    }
    const VerifyReport report = verify_ranks(plans, [&](int rank) -> const model::ModelSpec& {
      return specs[plans[rank].mesh.stage()];
    });
    ASSERT_TRUE(report.ok()) << "seed " << seed << ": " << first_violation(report);
  }
}

TEST(Planner, AModelThatTheDeviceDoesNotTakeIsRefused) {
  test::Draw draw(1);
  const model::ModelSpec spec = test::random_spec(draw, 1, false);
  PlanInput input = test::random_input(draw, spec, 1);
  EXPECT_FALSE(candidates(input, {}).empty());
  input.device.head_size_max = spec.architecture.head_size - 1;
  EXPECT_THROW(candidates(input, {}), Error);
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

// One rank on one tier, with everything on NVMe but gradients.
struct HeldGradients {
  HeldGradients(test::Draw& draw, const model::ModelSpec& spec)
      : input(test::random_input(draw, spec, 1)) {
    input.device.discrete = false;
    input.mode = OptimizerMode::kDeferred;
    placement = smallest_placement(input);
    std::fill(placement.grad_in_host.begin(), placement.grad_in_host.end(), 1);
  }
  PlanInput input;
  Placement placement;
};

// What blocks keep lies over gradients of lower ones.
TEST(Planner, KeepingIsFreeWhereGradientsOfLowerUnitsAreHeld) {
  int free = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    test::Draw draw(2000 + seed);
    const model::ModelSpec spec = test::random_spec(draw, 1, false);
    auto [input, placement] = HeldGradients(draw, spec);
    const auto before = bytes_of(input, placement);
    placement.keep[placement.keep.size() - 2] = 1;  // the block below the head
    const auto after = bytes_of(input, placement);
    free += after == before;
    const VerifyReport report = verify(build_plan(input, placement), spec);
    ASSERT_TRUE(report.ok()) << "seed " << seed << ": " << first_violation(report);
  }
  EXPECT_GE(free, 10);
}

Rates plain_rates() {
  Rates rates;
  rates.read_bytes_per_s = rates.write_bytes_per_s = 1e9;
  rates.matmul_flops_per_s = 20e9;
  rates.memory_bytes_per_s = rates.comm_within_bytes_per_s = 20e9;
  return rates;
}

int64_t write_lane_bytes(const Plan& plan, size_t* spills) {
  int64_t bytes = 0;
  for (const Op& op : plan.programs[static_cast<size_t>(ProgramName::kStep)].ops) {
    if (op.kind != OpKind::kSpill) continue;
    bytes += op.bytes;
    ++*spills;
  }
  return bytes;
}

// The same bytes are written, some of them after forward.
TEST(Planner, SecondMomentsWaitWhereGradientsWere) {
  const Rates rates = plain_rates();
  int behind = 0, faster = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    test::Draw draw(3000 + seed);
    const model::ModelSpec spec = test::random_spec(draw, 1, false);
    auto [input, placement] = HeldGradients(draw, spec);
    const Plan with = build_plan(input, placement);
    placement.write_behind = false;
    const Plan without = build_plan(input, placement);
    ASSERT_TRUE(verify(with, spec).ok()) << "seed " << seed;
    size_t spills_with = 0, spills_without = 0;
    EXPECT_EQ(write_lane_bytes(with, &spills_with), write_lane_bytes(without, &spills_without));
    EXPECT_EQ(with.arenas.bytes[1], without.arenas.bytes[1]);
    behind += spills_with > spills_without;
    faster += simulate(with, ProgramName::kStep, rates).step_s <
              simulate(without, ProgramName::kStep, rates).step_s;
  }
  EXPECT_GE(behind, 50);
  EXPECT_GE(faster, 30);
}

TEST(Planner, WherePredictionsCannotTellPlansApartTheOneThatWritesLessIsBetter) {
  EXPECT_TRUE(is_better({.predicted_s = 1.0, .written_bytes = 9}, {2.0, 1}));
  EXPECT_TRUE(is_better({.predicted_s = 1.001, .written_bytes = 1}, {1.0, 9}));
  EXPECT_FALSE(is_better({.predicted_s = 1.003, .written_bytes = 1}, {1.0, 9}));
  EXPECT_FALSE(is_better({.predicted_s = 1.0, .written_bytes = 5}, {1.0, 5}));
}

TEST(Planner, ALongRingOfStateStaysLongWhereOtherThingsBecomeResident) {
  test::Draw draw(11);
  const model::ModelSpec spec = test::random_spec(draw, 1, false);
  PlanInput input = test::random_input(draw, spec, 1);
  input.device.discrete = false;
  const PlacementSearch unlimited(input);
  const Placement least = unlimited.smallest();
  input.host_budget = unlimited.bytes(least)[static_cast<size_t>(Arena::kHost)] + (4 << 20);
  const PlacementSearch search(input);
  Placement placement = least;
  search.lengthen_state_ring(placement, 0.5);
  const int64_t length = placement.state_ring;
  ASSERT_GT(length, least.state_ring);
  for (const ResidencyKind kind : {ResidencyKind::kGradients, ResidencyKind::kWeights}) {
    search.make_resident(placement, kind, 1);
    EXPECT_EQ(placement.state_ring, std::min(length, search.streamed(placement).total));
  }
  EXPECT_TRUE(search.fits(placement));
}

TEST(Planner, SmallMovesNeverPlanASlowerStepThanThePolicies) {
  const Rates rates = plain_rates();
  const auto predict = [&](const Plan& plan) {
    return simulate(plan, ProgramName::kStep, rates).step_s;
  };
  int better = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    test::Draw draw(3000 + seed);
    const model::ModelSpec spec = test::random_spec(draw, 1, false);
    PlanInput input = test::random_input(draw, spec, 1);
    input.device.discrete = false;
    input.host_budget =
        bytes_of(input, smallest_placement(input))[1] + static_cast<int64_t>(draw.uniform() * 4e6);
    double best_s = std::numeric_limits<double>::infinity();
    for (const Candidate& candidate : candidates(input, {})) {
      best_s = std::min(best_s, predict(build_plan(input, candidate.placement)));
    }
    const PlannedRun run = make_plan(input, {.predict = predict});
    EXPECT_LE(run.cost.predicted_s, 1.002 * best_s) << "seed " << seed;
    EXPECT_LE(run.plan.arenas.bytes[1], input.host_budget) << "seed " << seed;
    EXPECT_EQ(predict(run.plan), run.cost.predicted_s) << "seed " << seed;
    better += run.cost.predicted_s < best_s;
  }
  EXPECT_GE(better, 1) << "moves that never find anything are never slower either";
}

// A ring holds what passes through it once, however much memory there is.
TEST(Planner, MuchMemoryIsNotTakenForNothing) {
  const Rates rates = plain_rates();
  const auto predict = [&](const Plan& plan) {
    return simulate(plan, ProgramName::kStep, rates).step_s;
  };
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    test::Draw draw(3100 + seed);
    const int world = static_cast<int>(draw.between(1, 3));
    const model::ModelSpec spec = test::random_spec(draw, world, false);
    PlanInput input = test::random_input(draw, spec, world);
    input.device.discrete = false;
    input.host_budget = 64 * kGiB;
    const PlannedRun run = make_plan(input, {.predict = predict});
    EXPECT_LT(run.plan.arenas.bytes[1], kGiB / 4) << "seed " << seed;
  }
}

int64_t nvme_bytes_of(const PlanInput& input, const Placement& placement) {
  return bytes_of(input, placement)[static_cast<size_t>(Arena::kNvme)];
}

TEST(Planner, WhatNvmeHasNoRoomForIsInHostMemory) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    test::Draw draw(seed);
    const model::ModelSpec spec = test::random_spec(draw, 1, false);
    PlanInput input = test::random_input(draw, spec, 1);
    input.device.discrete = false;
    input.host_budget = kNoLimit;
    const int64_t all = nvme_bytes_of(input, smallest_placement(input));
    int64_t host_before = kNoLimit;
    for (const int64_t eighths : {1, 3, 6, 8}) {
      input.nvme_budget = all * eighths / 8;
      const Placement least = least_placement(input, {});
      EXPECT_LE(nvme_bytes_of(input, least), input.nvme_budget);
      const int64_t host = bytes_of(input, least)[static_cast<size_t>(Arena::kHost)];
      EXPECT_LE(host, host_before) << eighths;
      host_before = host;
      // With just that much host memory the plan is one that the verifier accepts.
      PlanInput tight = input;
      tight.host_budget = host;
      const PlannedRun run = make_plan(tight, {});
      const VerifyReport report = verify(run.plan, spec);
      EXPECT_TRUE(report.ok()) << report.violations.front().text;
      tight.host_budget = host - 1;
      EXPECT_FALSE(fits(tight, {}));
    }
    EXPECT_EQ(host_before, bytes_of(input, smallest_placement(input))[1]);
  }
}

TEST(Planner, ADeviceThatMustHoldEverythingHasAllState) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    test::Draw draw(seed);
    const model::ModelSpec spec = test::random_spec(draw, 1, false);
    PlanInput input = test::random_input(draw, spec, 1);
    input.device.discrete = true;
    input.host_budget = input.device_budget = kNoLimit;
    input.nvme_budget = 0;
    const PlannedRun run = make_plan(input, {.must_be_on_device = true});
    const VerifyReport report = verify(run.plan, spec);
    EXPECT_TRUE(report.ok()) << report.violations.front().text;
    for (const LedgerLine& line : run.plan.arenas.lines) {
      const std::string purpose = line.purpose;
      const bool is_state = purpose.starts_with("weights, ") || purpose.starts_with("gradients") ||
                            purpose == "optimizer state, resident";
      if (!is_state || line.bytes == 0) continue;
      EXPECT_EQ(line.arena, Arena::kDevice) << purpose;
    }
    input.device_budget = run.plan.arenas.bytes[static_cast<size_t>(Arena::kDevice)] / 2;
    EXPECT_FALSE(fits(input, {.must_be_on_device = true}));
  }
}

TEST(Planner, ABudgetBelowTheSmallestPlacementIsRefusedWithWhatItNeeds) {
  test::Draw draw(5);
  const model::ModelSpec spec = test::random_spec(draw, 1, false);
  PlanInput input = test::random_input(draw, spec, 1);
  input.device.discrete = false;
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
