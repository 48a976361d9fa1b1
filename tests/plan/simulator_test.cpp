// SPDX-License-Identifier: Apache-2.0
// The simulator against times worked out by hand, and, for fixed durations, against the recurrence
// that defines when an op starts.
#include "engine/plan/simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "engine/base/rng.h"
#include "engine/base/units.h"
#include "tests/plan/program_builder.h"

namespace strata::plan {
namespace {

using enum Lane;

constexpr double kTiny = 1e-9;

// One byte, flop or byte of memory a second; 1 MiB/s on the drive both ways.
Rates unit_rates() {
  Rates rates;
  rates.read_bytes_per_s = rates.write_bytes_per_s = static_cast<double>(kMiB);
  rates.matmul_flops_per_s = rates.memory_bytes_per_s = 1;
  rates.upload_bytes_per_s = rates.download_bytes_per_s = rates.comm_within_bytes_per_s = 1;
  return rates;
}

ProgramBuilder step() {
  return ProgramBuilder(ProgramName::kStep);
}

SimulationResult once(const Plan& plan, const Rates& rates, ProgramName name = ProgramName::kStep) {
  return simulate(plan, name, rates, {.copies = 1, .keep_times = true});
}

double stall(const std::array<double, kLaneCount>& by_lane, Lane lane) {
  return by_lane[static_cast<size_t>(lane)];
}

TEST(Simulator, AWaitOnThePrecedingStepSerializes) {
  // The fetch needs the room that the last op of the step before it used.
  const Plan plan =
      step().add({kReadWeights}, {{kCompute, 0}}).add({kCompute}, {{kReadWeights, 1}}).plan();
  const double duration_s[] = {1, 2};
  const auto result = simulate(plan, ProgramName::kStep, duration_s);
  EXPECT_EQ(result.blocked, "");
  EXPECT_DOUBLE_EQ(result.step_s, 3);
  EXPECT_DOUBLE_EQ(result.copy_end_s.back(), 12);
  EXPECT_DOUBLE_EQ(stall(result.stall.direct_s, kReadWeights), 1);
  EXPECT_DOUBLE_EQ(result.stall.total_s(), 1);
}

TEST(Simulator, StepsOverlapWhereWaitsAllow) {
  // Two rooms: the fetch runs one step ahead, and hides.
  const Plan plan =
      step().add({kReadWeights}, {{kCompute, -1}}).add({kCompute}, {{kReadWeights, 1}}).plan();
  const double duration_s[] = {1, 2};
  const auto result = simulate(plan, ProgramName::kStep, duration_s);
  EXPECT_DOUBLE_EQ(result.step_s, 2);
  EXPECT_DOUBLE_EQ(result.stall.total_s(), 0);
  EXPECT_DOUBLE_EQ(stall(result.busy_s, kReadWeights), 1);
  EXPECT_DOUBLE_EQ(stall(result.busy_s, kCompute), 2);

  const double slow_read_s[] = {3, 2};
  Plan one_at_a_time = plan;
  one_at_a_time.io_depth = 1;
  const auto read_bound = simulate(one_at_a_time, ProgramName::kStep, slow_read_s);
  EXPECT_DOUBLE_EQ(read_bound.step_s, 3);
  EXPECT_DOUBLE_EQ(stall(read_bound.stall.direct_s, kReadWeights), 1);
}

TEST(Simulator, OtherProgramsStartDrained) {
  const Plan plan = ProgramBuilder(ProgramName::kEval)
                        .add({kReadWeights}, {{kCompute, -1}})
                        .add({kCompute}, {{kReadWeights, 1}})
                        .plan();
  const double duration_s[] = {1, 2};
  const auto result = simulate(plan, ProgramName::kEval, duration_s);
  EXPECT_DOUBLE_EQ(result.step_s, 3);
}

TEST(Simulator, StallHasADirectAndARootCause) {
  // Compute waits for the optimizer, which works one second of the four; before, it waits for its
  // state.
  const Plan plan = step()
                        .add({kReadState}, {{kCompute, 0}})
                        .add({kOptimizer}, {{kReadState, 1}})
                        .add({kCompute}, {{kOptimizer, 1}})
                        .plan();
  const double duration_s[] = {3, 1, 2};
  const auto result = simulate(plan, ProgramName::kStep, duration_s);
  EXPECT_DOUBLE_EQ(result.step_s, 6);
  EXPECT_DOUBLE_EQ(stall(result.stall.direct_s, kOptimizer), 4);
  EXPECT_DOUBLE_EQ(stall(result.stall.root_s, kReadState), 3);
  EXPECT_DOUBLE_EQ(stall(result.stall.root_s, kOptimizer), 1);
}

TEST(Simulator, IoLanesKeepDepthOpsAndPublishInOrder) {
  const Plan plan = step()
                        .add({kReadWeights})
                        .add({kReadWeights})
                        .add({kReadWeights})
                        .add({kCompute}, {{kReadWeights, 2}})
                        .plan(2);
  const double duration_s[] = {5, 1, 1, 1};
  const auto result =
      simulate(plan, ProgramName::kStep, duration_s, {.copies = 1, .keep_times = true});
  EXPECT_DOUBLE_EQ(result.times[1].end_s, 1);
  EXPECT_DOUBLE_EQ(result.times[2].begin_s, 5) << "two are in flight until the first is published";
  EXPECT_DOUBLE_EQ(result.times[3].begin_s, 5) << "the second is published after the first";
  EXPECT_DOUBLE_EQ(result.step_s, 6);
}

TEST(Simulator, WeightsTakeTheDriveFromAWriteAtTheEndOfAQuantum) {
  const Plan plan = step()
                        .add({kWrite, 4 * kMiB})
                        .add({kCompute, 0, 1.5})
                        .add({kReadWeights, 2 * kMiB}, {{kCompute, 1}})
                        .plan();
  const auto result = once(plan, unit_rates());
  EXPECT_NEAR(result.times[2].begin_s, 1.5, kTiny);
  EXPECT_NEAR(result.times[2].end_s, 4, kTiny) << "the write holds the drive until 2";
  EXPECT_NEAR(result.times[0].end_s, 6, kTiny);
  EXPECT_NEAR(result.any_works_s(kDrivesRead), 2, kTiny);
  EXPECT_NEAR(result.any_works_s(kDrivesWrite), 4, kTiny);
}

TEST(Simulator, WeightsComeBeforeStateAndStateBeforeWrites) {
  const Plan plan = step()
                        .add({kWrite, kMiB})
                        .add({kReadState, 2 * kMiB})
                        .add({kReadWeights, kMiB})
                        .add({kReadWeights, kMiB})
                        .plan();
  const auto result = once(plan, unit_rates());
  EXPECT_NEAR(result.times[2].end_s, 1, kTiny);
  EXPECT_NEAR(result.times[3].end_s, 2, kTiny);
  EXPECT_NEAR(result.times[1].end_s, 4, kTiny);
  EXPECT_NEAR(result.times[0].end_s, 5, kTiny);
}

TEST(Simulator, DuplexDirectionsShareTheMixedRate) {
  Rates rates = unit_rates();
  rates.half_duplex = false;
  rates.read_bytes_per_s = 4;
  rates.write_bytes_per_s = 2;
  rates.mixed_bytes_per_s = 3;
  const Plan plan = step().add({kReadState, 8}).add({kWrite, 2}).plan();
  const auto mixed = once(plan, rates);
  EXPECT_NEAR(mixed.times[1].end_s, 2, kTiny) << "1 B/s of the 3";
  EXPECT_NEAR(mixed.times[0].end_s, 3, kTiny) << "2 B/s for 2 s, then 4 B/s";

  rates.mixed_bytes_per_s = 0;
  const auto independent = once(plan, rates);
  EXPECT_NEAR(independent.times[0].end_s, 2, kTiny);
  EXPECT_NEAR(independent.times[1].end_s, 1, kTiny);
}

TEST(Simulator, WhatWorksTogetherIsCountedBySet) {
  Rates rates = unit_rates();
  rates.half_duplex = false;
  rates.read_bytes_per_s = rates.write_bytes_per_s = 1;
  rates.shared_cores = false;
  const Plan plan =
      step().add({kReadState, 5}).add({kWrite, 3}).add({kCompute, 0, 4}).add({kUpload, 6}).plan();
  const auto result = once(plan, rates);
  EXPECT_NEAR(result.working_s[kDrivesRead | kDrivesWrite | kComputeWorks | kLinkMoves], 3, kTiny);
  EXPECT_NEAR(result.working_s[kDrivesRead | kComputeWorks | kLinkMoves], 1, kTiny);
  EXPECT_NEAR(result.working_s[kDrivesRead | kLinkMoves], 1, kTiny);
  EXPECT_NEAR(result.working_s[kLinkMoves], 1, kTiny);
  EXPECT_NEAR(result.any_works_s(kDrivesRead | kDrivesWrite), 5, kTiny) << "not 8: they overlap";
  EXPECT_NEAR(result.any_works_s(kComputeWorks), 4, kTiny);
  EXPECT_NEAR(result.any_works_s(kOptimizerWorks | kRanksExchange), 0, kTiny);
}

TEST(Simulator, ReadsAndWritesOfAHalfDuplexDriveTakeTurns) {
  const Plan plan = step().add({kReadState, 2 * kMiB}).add({kWrite, 3 * kMiB}).plan();
  const auto result = once(plan, unit_rates());
  EXPECT_NEAR(result.any_works_s(kDrivesRead | kDrivesWrite), 5, kTiny);
  EXPECT_NEAR(result.working_s[kDrivesRead | kDrivesWrite], 0, kTiny);
}

TEST(Simulator, IoLatencyOverlapsTheNextTransfer) {
  Rates rates = unit_rates();
  rates.io_latency_s = 10;
  const Plan plan = step().add({kReadState, kMiB}).add({kReadState, kMiB}).plan();
  const auto result = once(plan, rates);
  EXPECT_NEAR(result.times[0].end_s, 11, kTiny);
  EXPECT_NEAR(result.times[1].end_s, 12, kTiny);
}

TEST(Simulator, ComputeAndOptimizerShareTheCores) {
  const Plan plan = step().add({kCompute, 0, 2}).add({kOptimizer, 1}).plan();
  Rates rates = unit_rates();
  auto result = once(plan, rates);
  EXPECT_NEAR(result.times[1].end_s, 2, kTiny);
  EXPECT_NEAR(result.times[0].end_s, 3, kTiny);

  rates.shared_speed = 0.75;
  result = once(plan, rates);
  EXPECT_NEAR(result.times[1].end_s, 4.0 / 3, kTiny);
  EXPECT_NEAR(result.times[0].end_s, 7.0 / 3, kTiny);

  rates.shared_cores = false;
  result = once(plan, rates);
  EXPECT_NEAR(result.times[1].end_s, 1, kTiny);
  EXPECT_NEAR(result.times[0].end_s, 2, kTiny);
}

TEST(Simulator, ComputeAndUpdatesShareADevice) {
  const Plan plan = step().add({kCompute, 0, 2}).add({kUpdate, 1}).plan();
  Rates rates = unit_rates();
  rates.shared_cores = false;
  rates.device_memory_bytes_per_s = rates.memory_bytes_per_s;
  auto result = once(plan, rates);
  EXPECT_NEAR(result.times[1].end_s, 2, kTiny);
  EXPECT_NEAR(result.times[0].end_s, 3, kTiny);
  rates.device_shared_speed = 1;
  result = once(plan, rates);
  EXPECT_NEAR(result.times[1].end_s, 1, kTiny);
  EXPECT_NEAR(result.times[0].end_s, 2, kTiny);
}

TEST(Simulator, IoTakesCoreTime) {
  Rates rates = unit_rates();
  rates.cores = 2;
  rates.io_cpu_s_per_byte = 1.0 / kMiB;  // one of the two cores while the drive is moving
  const Plan plan = step().add({kReadState, 4 * kMiB}).add({kCompute, 0, 1}).plan();
  EXPECT_NEAR(once(plan, rates).times[1].end_s, 2, kTiny);
  rates.shared_cores = false;
  EXPECT_NEAR(once(plan, rates).times[1].end_s, 1, kTiny) << "the device computes on its own";
  const Plan update = step().add({kReadState, 4 * kMiB}).add({kOptimizer, 1}).plan();
  EXPECT_NEAR(once(update, rates).times[1].end_s, 2, kTiny) << "the optimizer stays on the cores";
}

TEST(Simulator, LinksTakeBytesAndALatency) {
  Rates rates = unit_rates();
  rates.transfer_latency_s = 0.5;
  rates.compute_overhead_s = 0.125;
  rates.optimizer_overhead_s = 0.0625;
  const Plan plan = step()
                        .add({kUpload, 2})
                        .add({kDownload, 3})
                        .add({kCompute})
                        .add({kOptimizer}, {{kCompute, 1}})
                        .plan();
  const auto result = once(plan, rates);
  EXPECT_NEAR(result.times[0].end_s, 2.5, kTiny);
  EXPECT_NEAR(result.times[1].end_s, 3.5, kTiny);
  EXPECT_NEAR(result.times[2].end_s, 0.125, kTiny);
  EXPECT_NEAR(result.times[3].end_s, 0.1875, kTiny);
}

// A gather of two machines with two ranks each: a rank sends its part to the other machine, and its
// part and that of its seat there to the other rank of its own, at the same time.
TEST(Simulator, AnExchangeTakesWhatARankSends) {
  Rates rates = unit_rates();
  rates.comm_within_latency_s = rates.comm_between_latency_s = 0.25;
  rates.comm_between_bytes_per_s = 0.25;
  Plan plan = step().add({kComm, 16}).reads(4).plan();
  plan.mesh = {.world = 4};
  EXPECT_NEAR(once(plan, rates).times[0].end_s, 3 * 4 + 0.25, kTiny) << "one machine";
  plan.mesh.node_ranks = 2;
  EXPECT_NEAR(once(plan, rates).times[0].end_s, 4 / 0.25 + 0.25, kTiny);
  rates.comm_between_bytes_per_s = 1;
  EXPECT_NEAR(once(plan, rates).times[0].end_s, 2 * 4 + 0.25, kTiny) << "memory is slower";
  plan.mesh.node_ranks = 1;
  EXPECT_NEAR(once(plan, rates).times[0].end_s, 3 * 4 + 0.25, kTiny) << "all over the network";
}

TEST(Simulator, SkippedOpsTakeNoTimeAndStillCount) {
  const Plan plan = step()
                        .add({kReadState, 3 * kMiB, 0, Predicate::kPending})
                        .add({kOptimizer, 5, 0, Predicate::kPending}, {{kReadState, 1}})
                        .add({kCompute, 0, 1}, {{kOptimizer, 1}})
                        .plan();
  const auto pending = simulate(plan, ProgramName::kStep, unit_rates(), {.copies = 1});
  EXPECT_NEAR(pending.step_s, 9, kTiny);
  EXPECT_EQ(pending.bytes[static_cast<size_t>(kReadState)], 3 * kMiB);
  const auto none =
      simulate(plan, ProgramName::kStep, unit_rates(), {.copies = 1, .pending = false});
  EXPECT_NEAR(none.step_s, 1, kTiny);
  EXPECT_EQ(none.bytes[static_cast<size_t>(kReadState)], 0);
  EXPECT_EQ(none.flops, 1);
}

TEST(Simulator, StuckPlanSaysWhoWaitsForWhom) {
  const Plan plan =
      step().add({kCompute}, {{kOptimizer, 1}}).add({kOptimizer}, {{kCompute, 1}}).plan();
  const auto result = simulate(plan, ProgramName::kStep, unit_rates());
  EXPECT_EQ(result.step_s, std::numeric_limits<double>::infinity());
  EXPECT_EQ(result.blocked,
            "op 0 of copy 0 on compute waits for optimizer 1; "
            "op 1 of copy 0 on optimizer waits for compute 1");
}

// 48 layers of 1/48 s of the drive and of compute each, a quarter of the compute in forward; per
// layer 2 shares of 26 are weights (in both passes), 10 state and 12 written back. Deferred: the
// update comes before the layer's forward, once all of backward is over.
TEST(Simulator, DeferredStepIsForwardsTransfersPlusBackwardsCompute) {
  constexpr int kLayers = 48;
  constexpr int kBuffers = 4;
  constexpr int64_t kShare = 4 * kMiB;
  ProgramBuilder builder = step();
  for (int l = 0; l < kLayers; ++l) {
    builder.add({kReadWeights, 2 * kShare}, {{kCompute, l - kBuffers}});
    builder.add({kReadState, 10 * kShare}, {{kWrite, l - kBuffers}});
    builder.add({kOptimizer}, {{kReadWeights, l + 1}, {kReadState, l + 1}, {kCompute, 0}});
    builder.add({kWrite, 12 * kShare}, {{kOptimizer, l + 1}});
    builder.add({kCompute, 0, 0.25 / kLayers}, {{kOptimizer, l + 1}});
  }
  for (int l = kLayers; l < 2 * kLayers; ++l) {
    builder.add({kReadWeights, 2 * kShare}, {{kCompute, l - kBuffers}});
    builder.add({kCompute, 0, 0.75 / kLayers}, {{kReadWeights, l + 1}});
  }
  Rates rates = unit_rates();
  rates.read_bytes_per_s = rates.write_bytes_per_s = 26.0 * kShare * kLayers;
  const auto result = simulate(builder.plan(), ProgramName::kStep, rates);
  // 24/26 of the transfers, then 3/4 of the compute; the buffers let 4 layers of state and weights
  // be read before and 4 be written after.
  const double unbuffered_s = 24.0 / 26 + 0.75;
  const double buffered_s = kBuffers * (10.0 + 2 + 12) / 26 / kLayers;
  EXPECT_NEAR(result.step_s, unbuffered_s - buffered_s, 0.02);
  EXPECT_NEAR(result.any_works_s(kDrivesRead), 14.0 / 26, 0.001);
  EXPECT_NEAR(result.any_works_s(kDrivesWrite), 12.0 / 26, 0.001);
  EXPECT_NEAR(stall(result.busy_s, kCompute) + result.stall.total_s(), result.step_s, 1e-6);
}

// When each op of fixed duration starts and ends, from the definition: after the op that frees its
// place on the lane is published, after the op before it is issued, and after its waits.
std::vector<PredictedTime> by_recurrence(const Plan& plan, std::span<const double> duration_s,
                                         int copies) {
  const Program& program = plan.program(ProgramName::kStep);
  std::array<std::vector<double>, kLaneCount> published;
  std::array<double, kLaneCount> issued = {};
  std::vector<PredictedTime> times;
  for (int copy = 0; copy < copies; ++copy) {
    for (size_t i = 0; i < program.ops.size(); ++i) {
      const Op& op = program.ops[i];
      const size_t lane = static_cast<size_t>(op.lane);
      const size_t depth = is_serial(op.lane) ? 1 : static_cast<size_t>(plan.io_depth);
      double start = issued[lane];
      if (published[lane].size() >= depth) {
        start = std::max(start, published[lane][published[lane].size() - depth]);
      }
      for (const Wait& wait : program.waits_of(op)) {
        const size_t other = static_cast<size_t>(wait.lane);
        const int64_t target =
            copy * static_cast<int64_t>(program.lanes[other].size()) + wait.count;
        if (target > 0) start = std::max(start, published[other][static_cast<size_t>(target - 1)]);
      }
      const double end = start + duration_s[i];
      const double before = published[lane].empty() ? 0 : published[lane].back();
      published[lane].push_back(std::max(before, end));
      issued[lane] = start;
      times.push_back({start, end});
    }
  }
  return times;
}

TEST(Simulator, FixedDurationsFollowTheRecurrenceOnRandomPlans) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Philox random(seed);
    uint64_t draws = 0;
    const auto below = [&](uint64_t n) { return static_cast<int>(random.u64(draws++) % n); };
    ProgramBuilder builder = step();
    std::array<int, kLaneCount> counts = {};
    std::vector<double> duration_s;
    const int ops = 1 + below(60);
    for (int i = 0; i < ops; ++i) {
      const int lane = below(kLaneCount);
      const int on = below(kLaneCount);
      const int back = below(2) == 0 ? below(4) : -below(4);
      const int count = back > 0 ? std::max(0, counts[static_cast<size_t>(on)] - back + 1) : back;
      builder.add({static_cast<Lane>(lane)}, {{static_cast<Lane>(on), count}});
      ++counts[static_cast<size_t>(lane)];
      duration_s.push_back(0.25 * below(12));
    }
    const Plan plan = builder.plan(1 + below(4));
    const auto result =
        simulate(plan, ProgramName::kStep, duration_s, {.copies = 3, .keep_times = true});
    ASSERT_EQ(result.blocked, "") << "seed " << seed;
    const auto expected = by_recurrence(plan, duration_s, 3);
    ASSERT_EQ(result.times.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(result.times[i].begin_s, expected[i].begin_s) << "seed " << seed << " op " << i;
      ASSERT_EQ(result.times[i].end_s, expected[i].end_s) << "seed " << seed << " op " << i;
    }
  }
}

TEST(Simulator, RandomPlansMoveTheirBytesWithinTheDrivesTime) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Philox random(seed + 1000);
    uint64_t draws = 0;
    const auto below = [&](uint64_t n) { return static_cast<int>(random.u64(draws++) % n); };
    ProgramBuilder builder = step();
    double read_s = 0;
    double write_s = 0;
    Rates rates = unit_rates();
    rates.write_bytes_per_s = 0.5 * kMiB;
    for (int i = 0; i < 40; ++i) {
      const Lane lane = static_cast<Lane>(static_cast<int>(kReadWeights) + below(3));
      const int64_t bytes = below(5 << 20);
      const double s = static_cast<double>(bytes) / kMiB;
      (lane == kWrite ? write_s : read_s) += lane == kWrite ? 2 * s : s;
      builder.add({kCompute, 0, 0.5 * below(4)});
      builder.add({lane, bytes}, {{kCompute, std::max(0, i - 3)}});
    }
    const auto result = once(builder.plan(4), rates);
    EXPECT_NEAR(result.any_works_s(kDrivesRead), read_s, 1e-6) << "seed " << seed;
    EXPECT_NEAR(result.any_works_s(kDrivesWrite), write_s, 1e-6) << "seed " << seed;
    EXPECT_GE(result.step_s, read_s + write_s - 1e-6) << "seed " << seed;
  }
}

}  // namespace
}  // namespace strata::plan
