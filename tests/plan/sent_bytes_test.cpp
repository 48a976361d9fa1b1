// SPDX-License-Identifier: Apache-2.0
// What plans say that ranks send. Runs of ranks compare it with what they have sent
// (tests/support/small_run.h).
#include "engine/plan/sent_bytes.h"

#include <gtest/gtest.h>

#include "engine/plan/builder.h"
#include "tests/support/random_runs.h"

namespace strata::plan {
namespace {

// Of all ranks of the mesh, in a step.
int64_t sent_by_all(PlanInput input) {
  int64_t sum = 0;
  for (int rank = 0; rank < input.mesh.world; ++rank) {
    input.mesh.rank = rank;
    const Plan plan = build_plan(input, smallest_placement(input));
    sum += sent_bytes(plan, *input.spec, ProgramName::kStep).all();
  }
  return sum;
}

// Each of N ranks gathers a block's weights for the forward and for the backward, those of the
// last block, which are still there, of the embedding and the head once, and sends its part of
// others' gradients: (N - 1) / N of each.
TEST(SentBytes, AreTwoGathersAndASumWhateverTheAccumulation) {
  test::Draw draw(3);
  model::Architecture architecture = test::random_architecture(draw);
  architecture.tied = false;
  for (const int ranks : {2, 4}) {
    model::ModelSpec spec = model::build_spec(architecture);
    model::assign_offsets(spec, ranks);
    PlanInput input;
    input.spec = &spec;
    input.recipe = Recipe::kFp32;
    input.shape = {1, 8};
    input.mesh = {.world = ranks, .zero_stage = 3};
    input.nvme_budget = int64_t{1} << 40;
    int64_t weights = 0, gradients = 0, partials = 0;
    const Plan plan = build_plan(input, smallest_placement(input));
    for (size_t s = 0; s < spec.segments.size(); ++s) {
      const model::Segment& segment = spec.segments[s];
      const bool block = segment.kind == model::SegmentKind::kAttention ||
                         segment.kind == model::SegmentKind::kMlp;
      const bool is_last = s + 3 >= spec.segments.size();  // of the blocks
      weights += (block && !is_last ? 2 : 1) * segment.numel() * 4;
      gradients += segment.trainable_numel * 4;
    }
    partials = kNormBytes * std::ssize(plan.layout.chunks) * ranks;
    for (const int accumulate : {1, 2, 8}) {
      input.micro_batches = accumulate;
      EXPECT_EQ(sent_by_all(input), (ranks - 1) * (weights + gradients + 2 * partials))
          << ranks << " ranks, " << accumulate << " micro-batches";
    }
  }
}

// Sums that every rank keeps cost a sum and a gather; payloads are what goes to the sum.
TEST(SentBytes, OfStagesAndPayloads) {
  test::Draw draw(4);
  model::ModelSpec spec = model::build_spec(test::random_architecture(draw));
  model::assign_offsets(spec, 2);
  PlanInput input;
  input.spec = &spec;
  input.recipe = Recipe::kFp32;
  input.shape = {1, 8};
  input.mesh = {.world = 2, .zero_stage = 0};
  input.nvme_budget = int64_t{1} << 40;
  int64_t gradients = 0;
  for (const model::Segment& segment : spec.segments) gradients += segment.trainable_numel * 4;
  EXPECT_EQ(sent_by_all(input), 2 * gradients);
  input.mesh.reduce_dtype = Payload::kBF16;
  EXPECT_EQ(sent_by_all(input), gradients / 2 + gradients);
  input.mesh.reduce_dtype = Payload::kMxInt8;
  EXPECT_EQ(sent_by_all(input), gradients / 128 * 33 + gradients);
}

// Ranks of a stage have other remainders, and more or fewer of their group on their machine.
TEST(SentBytes, OfAStageAreThoseOfItsRanks) {
  test::Draw draw(5);
  model::Architecture architecture = test::sliceable_architecture(draw, 2);
  architecture.heads = architecture.kv_heads = 6;
  const model::ModelSpec spec = model::build_spec(architecture);
  const Mesh meshes[] = {{.world = 3, .zero_stage = 0},
                         {.world = 6, .replicate = 2, .node_ranks = 3},
                         {.world = 6, .replicate = 3, .node_ranks = 3},
                         {.world = 6, .tensor = 2, .node_ranks = 3},
                         {.world = 6, .zero_stage = 0, .context = 3, .node_ranks = 2}};
  for (const Mesh& mesh : meshes) {
    SCOPED_TRACE(testing::Message() << mesh.world << " ranks, " << mesh.tensor << " of tensors, "
                                    << mesh.context << " of context");
    for (const bool swaps_heads : {false, true}) {
      PlanInput input;
      model::ModelSpec slice = model::tensor_slice(spec, {0, mesh.tensor});
      model::assign_offsets(slice, mesh.shards());
      input.spec = &slice;
      input.recipe = Recipe::kFp32;
      input.shape = {1, 12};
      input.shape.swaps_heads = swaps_heads && mesh.context > 1;
      input.mesh = mesh;
      input.shape.context = mesh.context_part();
      input.nvme_budget = int64_t{1} << 40;
      const Plan first = build_plan(input, smallest_placement(input));
      SentBytes sum;
      for (int rank = 0; rank < mesh.world; ++rank) {
        input.mesh.rank = rank;
        input.shape.context = input.mesh.context_part();
        const Plan plan = build_plan(input, smallest_placement(input));
        sum += sent_bytes(plan, slice, ProgramName::kStep);
      }
      EXPECT_EQ(sent_by_stage(first, slice, ProgramName::kStep), sum);
    }
  }
}

// Groups of two on machines of three: ranks 2 and 3 are on two machines, and the others wait for
// them. Where all groups are alike, the rank itself is as slow as any.
TEST(SentBytes, TheSlowestGroupIsTheOneBetweenMachines) {
  const Mesh mesh = {.world = 6, .replicate = 3, .node_ranks = 3};
  const auto own = SentCounter(mesh).of_a_byte(GroupName::kShard);
  EXPECT_EQ(own, (SentBytes{.within = 1, .between = 0}));
  const auto slowest = SentCounter::of_slowest(mesh).of_a_byte(GroupName::kShard);
  EXPECT_EQ(slowest, (SentBytes{.within = 0, .between = 1}));
  const Mesh even = {.world = 8, .replicate = 4, .node_ranks = 4};
  for (const GroupName group : {GroupName::kShard, GroupName::kReplicate}) {
    EXPECT_EQ(SentCounter::of_slowest(even).of_a_byte(group), SentCounter(even).of_a_byte(group));
  }
}

// Of three stages of two ranks on machines of three, ranks 2 and 3 have the middle one: the one
// sends forward to the other machine, the other one back.
TEST(SentBytes, TheSlowestMessageGoesBetweenMachines) {
  const Mesh mesh = {.world = 6, .rank = 2, .pipeline = 3, .node_ranks = 3};
  for (const ValueKind kind : {ValueKind::kActivation, ValueKind::kActivationGradient}) {
    Program program;
    program.accesses.resize(1);
    program.accesses[0].value.kind = kind;
    program.accesses[0].bytes = 100;
    Op send;
    send.kind = OpKind::kSend;
    send.group = GroupName::kPipeline;
    send.access_end = 1;
    EXPECT_EQ(SentCounter::of_slowest(mesh).of(program, send), (SentBytes{.between = 100}));
    const bool is_far = SentCounter(mesh).of(program, send).between > 0;
    EXPECT_EQ(is_far, kind == ValueKind::kActivation);
  }
}

}  // namespace
}  // namespace strata::plan
