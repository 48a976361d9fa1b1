// SPDX-License-Identifier: Apache-2.0
// The lower bound against bytes, operations and times worked out by hand.
#include "engine/plan/lower_bound.h"

#include <gtest/gtest.h>

#include <vector>

namespace strata::plan {
namespace {

using model::SegmentKind;

// An embedding of 1000 elements, two block segments of 2000, a head of 1000; one chunk each.
struct Model {
  model::ModelSpec spec;
  shard::Layout layout;
  std::vector<model::Footprint> footprints = std::vector<model::Footprint>(4);

  Model() {
    add(SegmentKind::kEmbedding, 1000);
    add(SegmentKind::kAttention, 2000);
    add(SegmentKind::kMlp, 2000);
    add(SegmentKind::kHead, 1000);
    footprints[1] = {
        .interior_bytes = 60, .forward_flops = 1, .recompute_flops = 1, .backward_flops = 2};
    footprints[2] = {
        .interior_bytes = 40, .forward_flops = 2, .recompute_flops = 2, .backward_flops = 4};
    footprints[3] = {.forward_flops = 1, .backward_flops = 3};
  }

  void add(SegmentKind kind, int64_t numel) {
    model::Segment segment;
    segment.kind = kind;
    shard::Chunk chunk;
    chunk.segment = static_cast<int>(spec.segments.size());
    chunk.numel = numel;
    spec.segments.push_back(segment);
    layout.chunks.push_back(chunk);
  }

  LowerBoundInput input(Recipe recipe = Recipe::kBf16) const {
    return {.spec = spec,
            .layout = layout,
            .footprints = footprints,
            .recipe = recipe,
            .holds_gradients = false};
  }
};

// Everything is instant but the drive: 1 byte a second.
Rates drive_alone() {
  Rates rates;
  rates.read_bytes_per_s = rates.write_bytes_per_s = 1;
  rates.matmul_flops_per_s = rates.memory_bytes_per_s = 1e18;
  rates.upload_bytes_per_s = rates.download_bytes_per_s = rates.comm_within_bytes_per_s = 1e18;
  return rates;
}

TEST(LowerBound, CheckpointsAreWrittenAndReadWhereNothingKeepsThem) {
  Model model;
  model.spec.units = {{"embed", {0}}, {"block", {1, 2}}, {"head", {3}}};
  LowerBoundInput input = model.input();
  input.micro_batches = 4;
  input.boundary_bytes = 100;
  const LowerBound without = lower_bound(input, drive_alone());
  EXPECT_DOUBLE_EQ(without.nvme_read_bytes, 80000 + 400);
  EXPECT_DOUBLE_EQ(without.nvme_write_bytes, 72000 + 400);
  // At the turn 300 bytes are best spent on them; between steps they save others, too.
  input.host_bytes = 300;
  const LowerBound some = lower_bound(input, drive_alone());
  EXPECT_DOUBLE_EQ(some.nvme_read_bytes, 80000 + 400 - 300 - 300);
  EXPECT_DOUBLE_EQ(some.nvme_write_bytes, 72000 + 400 - 300 - 300);
}

TEST(LowerBound, EverythingOnNvmeMovesEachPlaneAsOftenAsItIsUsed) {
  const Model model;
  // Read: blocks' hi twice (16000), the ends' once (4000), lo and moments (60000). Written: 12 a
  // parameter.
  const LowerBound bf16 = lower_bound(model.input(), drive_alone());
  EXPECT_DOUBLE_EQ(bf16.nvme_read_bytes, 80000);
  EXPECT_DOUBLE_EQ(bf16.nvme_write_bytes, 72000);
  EXPECT_DOUBLE_EQ(bf16.step_s, 152000);
  EXPECT_EQ(bf16.binding, Resource::kNvme);
  EXPECT_EQ(bf16.passes, 1);

  const LowerBound fp32 = lower_bound(model.input(Recipe::kFp32), drive_alone());
  EXPECT_DOUBLE_EQ(fp32.nvme_read_bytes, 32000 + 8000 + 48000);
  EXPECT_DOUBLE_EQ(fp32.nvme_write_bytes, 72000);
}

TEST(LowerBound, HeldGradientsAreWrittenAndReadWhereNoRoomIsLeft) {
  const Model model;
  LowerBoundInput input = model.input();
  input.holds_gradients = true;
  const LowerBound spilled = lower_bound(input, drive_alone());
  EXPECT_DOUBLE_EQ(spilled.nvme_read_bytes, 80000 + 24000);
  EXPECT_DOUBLE_EQ(spilled.nvme_write_bytes, 72000 + 24000);

  input.host_bytes = 72000 + 24000;
  const LowerBound resident = lower_bound(input, drive_alone());
  EXPECT_DOUBLE_EQ(resident.nvme_read_bytes, 0);
  EXPECT_DOUBLE_EQ(resident.nvme_write_bytes, 0);
  input.host_bytes -= 1;
  EXPECT_DOUBLE_EQ(lower_bound(input, drive_alone()).nvme_read_bytes, 1);
}

TEST(LowerBound, BudgetSavesReadsAtTheTurnAndBothMovesBetweenSteps) {
  const Model model;
  LowerBoundInput input = model.input();
  input.host_bytes = 10000;
  const LowerBound bound = lower_bound(input, drive_alone());
  EXPECT_DOUBLE_EQ(bound.nvme_read_bytes, 80000 - 8000 - 10000) << "only 8000 bytes are used again";
  EXPECT_DOUBLE_EQ(bound.nvme_write_bytes, 72000 - 10000);
}

TEST(LowerBound, FrozenWeightsAreReadOnly) {
  Model model;
  model.layout.chunks[1].frozen = true;
  LowerBoundInput input = model.input();
  const LowerBound bound = lower_bound(input, drive_alone());
  EXPECT_DOUBLE_EQ(bound.nvme_read_bytes, 20000 + 40000);
  EXPECT_DOUBLE_EQ(bound.nvme_write_bytes, 48000);

  input.host_bytes = 50000;  // 48000 of state; then frozen weights: reads alone
  const LowerBound cached = lower_bound(input, drive_alone());
  EXPECT_DOUBLE_EQ(cached.nvme_read_bytes, 60000 - 8000 - 50000);
  EXPECT_DOUBLE_EQ(cached.nvme_write_bytes, 0);
}

TEST(LowerBound, TiedMatrixIsUsedTwice) {
  Model model;
  model.spec.segments[3].shares = 0;
  EXPECT_DOUBLE_EQ(lower_bound(model.input(), drive_alone()).nvme_read_bytes, 82000);
}

TEST(LowerBound, InteriorsThatDoNotFitAreRebuiltTheDearestKeptFirst) {
  const Model model;
  Rates rates = drive_alone();
  rates.read_bytes_per_s = rates.write_bytes_per_s = 1e18;
  rates.matmul_flops_per_s = 1;
  rates.shared_cores = false;
  LowerBoundInput input = model.input();
  // Forward and backward: 3 + 6 + 3 (the head's two are one op).
  EXPECT_DOUBLE_EQ(lower_bound(input, rates).flops, 12 + 1 + 2);
  input.host_bytes = 100;
  EXPECT_DOUBLE_EQ(lower_bound(input, rates).flops, 12);
  input.host_bytes = 40 + 15;  // the MLP's whole, a quarter of the attention's
  const LowerBound bound = lower_bound(input, rates);
  EXPECT_DOUBLE_EQ(bound.flops, 12.75);
  EXPECT_DOUBLE_EQ(bound.step_s, 12.75);
  EXPECT_EQ(bound.binding, Resource::kCompute);
}

TEST(LowerBound, MorePassesWhereComputeBindsAndOneWhereTheDriveDoes) {
  const Model model;
  LowerBoundInput input = model.input();
  input.micro_batches = 4;
  input.host_bytes = 100;  // interiors of one micro-batch
  Rates rates = drive_alone();
  rates.shared_cores = false;
  rates.matmul_flops_per_s = 1;
  rates.read_bytes_per_s = rates.write_bytes_per_s = 1e18;
  const LowerBound compute = lower_bound(input, rates);
  EXPECT_EQ(compute.passes, 4);
  EXPECT_DOUBLE_EQ(compute.flops, 4 * 12);
  // The weights of 3 more passes, and 3 times sums of gradients out and in again, less the cache.
  EXPECT_DOUBLE_EQ(compute.nvme_read_bytes, 80000 + 3 * (20000 + 24000) - 8 * 100);
  EXPECT_DOUBLE_EQ(compute.nvme_write_bytes, 72000 + 3 * 24000 - 4 * 100);

  rates.matmul_flops_per_s = 1e18;
  rates.read_bytes_per_s = rates.write_bytes_per_s = 1;
  const LowerBound drive = lower_bound(input, rates);
  EXPECT_EQ(drive.passes, 1);
  EXPECT_DOUBLE_EQ(drive.nvme_read_bytes, 80000 - 200);
}

TEST(LowerBound, DuplexDirectionsBindAlone) {
  const Model model;
  Rates rates = drive_alone();
  rates.half_duplex = false;
  EXPECT_DOUBLE_EQ(lower_bound(model.input(), rates).step_s, 80000);
  EXPECT_EQ(lower_bound(model.input(), rates).binding, Resource::kNvmeRead);
  rates.write_bytes_per_s = 0.5;
  EXPECT_EQ(lower_bound(model.input(), rates).binding, Resource::kNvmeWrite);
  rates.mixed_bytes_per_s = 1;
  // Both at two thirds of their rates until the reads end at 120000; 64000 s of writes alone are
  // left.
  const LowerBound mixed = lower_bound(model.input(), rates);
  EXPECT_NEAR(mixed.step_s, 184000, 1e-6);
  EXPECT_EQ(mixed.binding, Resource::kNvme);
  rates.mixed_bytes_per_s = 0.5;  // together they are slower than in turn
  EXPECT_DOUBLE_EQ(lower_bound(model.input(), rates).step_s, 80000 + 144000);
}

TEST(LowerBound, MemoryAndSharedCores) {
  const Model model;
  Rates rates = drive_alone();
  rates.read_bytes_per_s = rates.write_bytes_per_s = 1e18;
  rates.memory_bytes_per_s = 1;
  rates.shared_cores = false;
  LowerBoundInput input = model.input();
  const LowerBound memory = lower_bound(input, rates);
  EXPECT_DOUBLE_EQ(memory.memory_bytes, 28 * 6000 + 152000);
  EXPECT_EQ(memory.binding, Resource::kMemory);

  rates.shared_cores = true;
  rates.matmul_flops_per_s = 15 / 168000.0;  // compute takes as long as the update: 168000 s
  input.host_bytes = 0;
  const LowerBound half = lower_bound(input, rates);
  EXPECT_EQ(half.binding, Resource::kCores);
  EXPECT_NEAR(half.step_s, 2 * 168000, 1e-6);
  rates.shared_speed = 0.75;  // both in parallel, each at three quarters
  const LowerBound better = lower_bound(input, rates);
  EXPECT_NEAR(better.least_s[static_cast<size_t>(Resource::kCores)], 168000 / 0.75, 1e-6);
  rates.io_cpu_s_per_byte = 2;
  rates.cores = 4;
  EXPECT_NEAR(lower_bound(input, rates).least_s[static_cast<size_t>(Resource::kCores)],
              168000 / 0.75 + 152000 * 2 / 4.0, 1e-6);
}

TEST(LowerBound, DeviceLinksCarryUpdatedWeightsOnceAndGradientsOnce) {
  const Model model;
  LowerBoundInput input = model.input();
  input.discrete = true;
  Rates rates = drive_alone();
  rates.read_bytes_per_s = rates.write_bytes_per_s = 1e18;
  rates.upload_bytes_per_s = 1;
  const LowerBound none = lower_bound(input, rates);
  EXPECT_DOUBLE_EQ(none.upload_bytes, 20000);
  EXPECT_DOUBLE_EQ(none.download_bytes, 24000);
  EXPECT_EQ(none.binding, Resource::kUpload);
  rates.upload_bytes_per_s = 1e18;
  rates.download_bytes_per_s = 1;
  EXPECT_EQ(lower_bound(input, rates).binding, Resource::kDownload);
}

// 6000 trainable elements with 12 bytes of state each.
TEST(LowerBound, WhatIsAtHomeOnTheDeviceCrossesNoLink) {
  const Model model;
  LowerBoundInput input = model.input();
  input.discrete = true;
  input.device_bytes = 72000;
  const LowerBound all = lower_bound(input, drive_alone());
  EXPECT_DOUBLE_EQ(all.upload_bytes, 0);
  EXPECT_DOUBLE_EQ(all.download_bytes, 0);
  input.device_bytes = 36000;
  const LowerBound half = lower_bound(input, drive_alone());
  EXPECT_DOUBLE_EQ(half.download_bytes, 12000);
  EXPECT_DOUBLE_EQ(half.upload_bytes, 6000) << "an updated weight comes once more";
}

TEST(LowerBound, FrozenWeightsStayOnTheDevice) {
  Model model;
  model.layout.chunks[1].frozen = true;
  LowerBoundInput input = model.input();
  input.discrete = true;
  // Of the twice used at the turn, of the frozen ones between steps, and of those at home for good.
  input.device_bytes = 3000;
  EXPECT_DOUBLE_EQ(lower_bound(input, drive_alone()).upload_bytes, 20000 - 3000 - 3000 - 1000);
}

TEST(LowerBound, RanksShareTheStateAndExchangeTheRest) {
  const Model model;
  LowerBoundInput input = model.input();
  input.mesh = {.world = 4, .rank = 0, .zero_stage = 3};
  Rates rates = drive_alone();
  const LowerBound sharded = lower_bound(input, rates);
  EXPECT_DOUBLE_EQ(sharded.nvme_read_bytes, 20000);
  EXPECT_DOUBLE_EQ(sharded.nvme_write_bytes, 18000);
  EXPECT_DOUBLE_EQ(sharded.comm_within_bytes, 0.75 * (20000 + 24000));
  input.mesh.zero_stage = 1;
  const LowerBound whole_weights = lower_bound(input, rates);
  EXPECT_DOUBLE_EQ(whole_weights.nvme_read_bytes, 20000 + 15000);
  EXPECT_DOUBLE_EQ(whole_weights.comm_within_bytes, 0.75 * (12000 + 24000));
  input.mesh.zero_stage = 0;
  const LowerBound replicated = lower_bound(input, rates);
  EXPECT_DOUBLE_EQ(replicated.nvme_read_bytes, 80000);
  EXPECT_DOUBLE_EQ(replicated.comm_within_bytes, 0.75 * (24000 + 24000));
  rates.comm_within_bytes_per_s = 1e-3;
  EXPECT_EQ(lower_bound(input, rates).binding, Resource::kComm);
}

}  // namespace
}  // namespace strata::plan
