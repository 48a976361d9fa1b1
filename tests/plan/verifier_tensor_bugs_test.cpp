// SPDX-License-Identifier: Apache-2.0
// Seeded bugs in plans of tensor ranks that divide the vocabulary, and the kind of violation that
// each must be.
#include <gtest/gtest.h>

#include "engine/plan/builder.h"
#include "tests/plan/seeded_bugs.h"
#include "tests/support/random_runs.h"

namespace strata::plan {
namespace {

using bugs::Editor;

// Whether the ranks have a device of their own.
class BugsOfTensorRanks : public testing::TestWithParam<bool> {
 protected:
  BugsOfTensorRanks() {
    test::Draw draw(11);
    tiny_.spec = test::random_slice(draw, {0, 2}, 1);
    PlanInput input = test::random_input(draw, tiny_.spec, 2);
    input.mesh.tensor = 2;
    input.device.discrete = GetParam();
    tiny_.plan = build_plan(input, test::all_in_memory(input));
  }

  // Removes the first exchange of the kind that has a value of the kind. What waited for it waits
  // for compute instead.
  void remove(Program& in, OpKind kind, ValueKind value) {
    const auto is_it = [&](const Op& op) {
      return op.kind == kind && std::ranges::any_of(in.accesses_of(op), [&](const Access& access) {
               return access.value.kind == value;
             });
    };
    const auto at = std::ranges::find_if(in.ops, is_it);
    ASSERT_NE(at, in.ops.end());
    const auto computed =
        std::count_if(in.ops.begin(), at, [](const Op& op) { return op.lane == Lane::kCompute; });
    const auto& lane = in.lanes[static_cast<size_t>(at->lane)];
    const auto place =
        std::ranges::find(lane, static_cast<uint32_t>(at - in.ops.begin())) - lane.begin();
    for (Wait& wait : in.waits) {
      if (wait.lane == at->lane && wait.count == place + 1) {
        wait = {Lane::kCompute, static_cast<int32_t>(computed)};
      }
    }
    editor_.remove(in, *at);
    int32_t number = 0;
    for (Op& op : in.ops) {
      if (is_comm_lane(op.lane)) op.number = number++;
    }
  }

  void expect(const std::string& kind) {
    std::string found;
    for (const Violation& violation : verify(tiny_.plan, tiny_.spec).violations) {
      found += violation.kind + ": " + violation.text + "\n";
    }
    EXPECT_NE(found.find(kind + ": "), std::string::npos) << "found: " << found;
  }

  bugs::Tiny tiny_;
  Editor editor_{tiny_};
};

TEST_P(BugsOfTensorRanks, ThePlanWithoutThemIsAccepted) {
  EXPECT_TRUE(tiny_.spec.tensor.cuts_vocabulary);
  EXPECT_TRUE(verify(tiny_.plan, tiny_.spec).ok());
}

TEST_P(BugsOfTensorRanks, LogitsWithoutTheSumOverRanks) {
  Program& generate = editor_.program(ProgramName::kGenerate);
  remove(generate, OpKind::kReduce, ValueKind::kLogits);
  expect("stale");
}

TEST_P(BugsOfTensorRanks, LogitsOfOneRankForTheCaller) {
  Program& generate = editor_.program(ProgramName::kGenerate);
  remove(generate, OpKind::kReduce, ValueKind::kLogits);
  for (Access& access : generate.accesses) {
    if (access.value.kind == ValueKind::kLogits) access.value.reduced = 0;
  }
  expect("results");
}

TEST_P(BugsOfTensorRanks, ScoresWithoutThoseOfOtherRanks) {
  remove(editor_.step(), OpKind::kGather, ValueKind::kScores);
  expect("stale");
}

TEST_P(BugsOfTensorRanks, RowsWithoutThoseOfOtherRanks) {
  remove(editor_.step(), OpKind::kGather, ValueKind::kRows);
  expect("unwritten");
}

TEST_P(BugsOfTensorRanks, GradientsOfRowsWithoutThoseOfOtherRanks) {
  remove(editor_.step(), OpKind::kGather, ValueKind::kRowGradient);
  expect("unwritten");
}

TEST_P(BugsOfTensorRanks, AGradientOfOneRankOfWhatAllHave) {
  remove(editor_.step(), OpKind::kReduce, ValueKind::kGradient);
  expect("stale");
}

TEST_P(BugsOfTensorRanks, RowsOfAnotherRank) {
  const int64_t bytes = model::branch_bytes(tiny_.spec, tiny_.plan.shape);
  for (Access& access : editor_.step().accesses) {
    if (access.value.kind != ValueKind::kBranch || access.value.reduced == 0) continue;
    access.offset += bytes;
    access.first += bytes;
  }
  expect("transfer");
}

// Of a model with norms over all heads.
TEST_P(BugsOfTensorRanks, NormsOfOwnHeadsAlone) {
  test::Draw draw(12);
  const auto family = std::ranges::find_if(model::families(), [](const model::Family& one) {
    return one.block.qk_norm == model::QkNorm::kProjection;
  });
  ASSERT_NE(family, model::families().end());
  const model::ModelSpec whole =
      model::build_spec(test::sliceable_architecture_of(draw, *family, 2));
  tiny_.spec = model::tensor_slices(whole, 2, 1).front();
  PlanInput input = test::random_input(draw, tiny_.spec, 2);
  input.mesh.tensor = 2;
  input.device.discrete = GetParam();
  tiny_.plan = build_plan(input, test::all_in_memory(input));
  EXPECT_TRUE(verify(tiny_.plan, tiny_.spec).ok());
  remove(editor_.step(), OpKind::kReduce, ValueKind::kNormSums);
  expect("stale");
}

// Ranks exchange values of a device through host memory.
TEST_P(BugsOfTensorRanks, ABounceBufferThatIsMissingOrOnTheDevice) {
  Program& step = editor_.step();
  const auto exchange = std::ranges::find_if(step.ops, [&](const Op& op) {
    return is_comm_lane(op.lane) && step.accesses_of(op).back().value.kind == ValueKind::kScratch;
  });
  ASSERT_EQ(exchange != step.ops.end(), GetParam());
  if (!GetParam()) return;
  Access& buffer = step.accesses[exchange->access_end - 1];
  buffer.arena = Arena::kDevice;
  expect("arena");
  buffer.arena = Arena::kHost;
  --exchange->access_end;
  expect("arena");
  ++exchange->access_end;
  EXPECT_TRUE(verify(tiny_.plan, tiny_.spec).ok());
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutDevice, BugsOfTensorRanks, testing::Bool());

}  // namespace
}  // namespace strata::plan
