// SPDX-License-Identifier: Apache-2.0
// Seeded bugs in plans of stages of a pipeline, and the kind of violation that each must be.
#include <gtest/gtest.h>

#include <functional>

#include "engine/plan/builder.h"
#include "engine/plan/pipeline.h"
#include "engine/plan/verifier.h"
#include "tests/support/random_runs.h"

namespace strata::plan {
namespace {

// The middle one of three stages, whose state two ranks share.
class StageBugs : public ::testing::Test {
 protected:
  StageBugs() : draw_(5), spec_(test::random_stage(draw_, 3, 1, 2)) {
    PlanInput input = test::random_input(draw_, spec_, 6);
    input.micro_batches = 8;
    input.windows = {4, PipelineOrder::kOneForwardOneBackward};
    input.mode = OptimizerMode::kDeferred;
    input.mesh.pipeline = 3;
    input.mesh.rank = 2;
    input.mesh.zero_stage = 3;
    plan_ = build_plan(input, test::all_in_memory(input));
  }

  Program& step() { return plan_.programs[static_cast<size_t>(ProgramName::kStep)]; }

  Op& op(OpKind kind, int which = 0) {
    for (Op& one : step().ops) {
      if (one.kind == kind && which-- == 0) return one;
    }
    ADD_FAILURE() << "no such op";
    return step().ops.front();
  }

  Access& access(const Op& of) { return step().accesses[of.access_begin]; }

  void expect(const char* kind) {
    const VerifyReport report = verify(plan_, spec_);
    ASSERT_FALSE(report.ok());
    bool found = false;
    std::string all;
    for (const Violation& violation : report.violations) {
      found |= violation.kind == kind;
      all += violation.kind + ": " + violation.text + "\n";
    }
    EXPECT_TRUE(found) << all;
  }

  test::Draw draw_;
  const model::ModelSpec spec_;
  Plan plan_;
};

TEST_F(StageBugs, ThePlanWithoutThemIsAccepted) {
  const VerifyReport report = verify(plan_, spec_);
  EXPECT_TRUE(report.ok()) << report.violations.front().text;
}

TEST_F(StageBugs, MessagesInAnotherOrderThanTheScheduleAreMessages) {
  std::swap(op(OpKind::kRecv, 0).micro_batch, op(OpKind::kRecv, 1).micro_batch);
  expect("messages");
}

TEST_F(StageBugs, AMessageWithTheNumberOfAnotherIsMessages) {
  op(OpKind::kSend, 0).number = op(OpKind::kSend, 1).number;
  expect("messages");
}

TEST_F(StageBugs, AMessageOfAnotherMicroBatchIsMessages) {
  access(op(OpKind::kSend, 0)).value.index = 1;
  expect("messages");
}

TEST_F(StageBugs, AMessageWithPartOfItsTensorIsMessages) {
  access(op(OpKind::kSend, 0)).bytes -= 4;
  expect("messages");
}

TEST_F(StageBugs, AGradientThatIsSentForAnOutputIsMessages) {
  access(op(OpKind::kRecv, 0)).value.kind = ValueKind::kActivationGradient;
  expect("messages");
}

TEST_F(StageBugs, AMessageOfAnotherGroupIsMessages) {
  op(OpKind::kSend, 0).group = GroupName::kShard;
  expect("messages");
}

TEST_F(StageBugs, AGatherThatOthersWaitForWithALargerNumberIsNumbers) {
  op(OpKind::kGather, 0).number += 100 * kNumbersOfTick;
  expect("numbers");
}

TEST_F(StageBugs, AScheduleThatIsNotThePlansIsMessages) {
  plan_.windows.order = PipelineOrder::kAllForward;
  expect("messages");
}

TEST_F(StageBugs, WindowsThatDoNotDivideTheMicroBatchesAreLayout) {
  plan_.windows.count = 3;
  expect("layout");
}

TEST_F(StageBugs, AStageOfAnotherRankIsLayout) {
  plan_.mesh.rank = 4;
  expect("layout");
}

TEST_F(StageBugs, AnUpdateThatDecidesFromItsOwnNormIsContributions) {
  Op& decide = op(OpKind::kDecide);
  Access& sum = access(decide);
  ASSERT_EQ(sum.value.kind, ValueKind::kNormSum);
  for (const Op& one : step().ops) {
    if (one.kind == OpKind::kReduce && one.group == GroupName::kPipeline) sum = access(one);
  }
  expect("contributions");
}

TEST_F(StageBugs, ANormSumWithoutASegmentIsDecide) {
  for (Op& one : step().ops) {
    if (one.kind == OpKind::kReduce && one.group == GroupName::kPipeline) ++one.access_begin;
  }
  expect("decide");
}

TEST(Pipeline, TheSlowestStageGivesTheTimeOfAStep) {
  const double even[] = {4, 4, 4};
  const Windows windows = {4, PipelineOrder::kOneForwardOneBackward};
  EXPECT_DOUBLE_EQ(pipeline_step_s({.ranks = 3}, even, 0.5, windows), 4.0 / 4 * (4 + 3 - 1));
  const double one_slow[] = {1, 8, 1};
  EXPECT_GT(pipeline_step_s({.ranks = 3}, one_slow, 0.5, windows), 8.0);
  EXPECT_LT(pipeline_step_s({.ranks = 3}, one_slow, 0.5, windows), 8.0 + 2 * 1.0);
}

TEST(Pipeline, ManyWindowsHaveASchedule) {
  for (const PipelineOrder order :
       {PipelineOrder::kAllForward, PipelineOrder::kOneForwardOneBackward}) {
    for (const bool tied : {false, true}) {
      const model::Route route = {.ranks = 8, .embeds_on_last = tied};
      const StageSchedule schedule = schedule_stage(route, 7, {2048, order}, true);
      EXPECT_EQ(schedule.phases.size(), (tied ? 4 : 2) * 2048u);
      EXPECT_GT(number_of_norm_sum(schedule),
                number_of(route, {true, 7, 2047, schedule.ticks - 1}, 0));
    }
  }
}

// 1F1B keeps as many windows as there are stages from a stage on; GPipe keeps all.
TEST(Pipeline, OrdersKeepSoManyWindows) {
  for (int stage = 0; stage < 4; ++stage) {
    const auto kept = [&](const Windows& windows) {
      return schedule_stage({.ranks = 4}, stage, windows, true).sections.front().kept;
    };
    EXPECT_EQ(kept({8, PipelineOrder::kOneForwardOneBackward}), 4 - stage);
    EXPECT_EQ(kept({8, PipelineOrder::kAllForward}), 8);
    EXPECT_EQ(kept({2, PipelineOrder::kOneForwardOneBackward}), std::min(2, 4 - stage));
  }
}

}  // namespace
}  // namespace strata::plan
