// SPDX-License-Identifier: Apache-2.0
// Seeded bugs in plans of stages of a pipeline, and the kind of violation that each must be.
#include <gtest/gtest.h>

#include "engine/plan/builder.h"
#include "engine/plan/pipeline.h"
#include "engine/plan/verifier.h"
#include "tests/support/random_runs.h"

namespace strata::plan {
namespace {

// A stage of three, whose state two ranks share.
class BugsOfStage : public ::testing::Test {
 protected:
  BugsOfStage(int stage, int laps, bool tied,
              PipelineOrder order = PipelineOrder::kOneForwardOneBackward)
      : draw_(5), spec_(stage_of(stage, laps, tied)) {
    PlanInput input = test::random_input(draw_, spec_, 6);
    input.micro_batches = 8;
    input.windows = {4, order};
    input.mode = OptimizerMode::kDeferred;
    input.device.discrete = false;
    input.mesh.pipeline = 3;
    input.mesh.rank = 2 * stage;
    input.mesh.zero_stage = 3;
    plan_ = build_plan(input, test::all_in_memory(input));
  }

  model::ModelSpec stage_of(int stage, int laps, bool tied) {
    model::Architecture architecture = test::stageable_architecture(draw_, 3 * laps, 1);
    architecture.tied = tied;
    const model::ModelSpec whole = test::random_spec_of(draw_, architecture, 1, false);
    return test::stage_of(whole, 3, laps, stage, 2);
  }

  Program& step() { return plan_.programs[static_cast<size_t>(ProgramName::kStep)]; }

  Op& op(OpKind kind, int which = 0) {
    return op_that(which, [&](const Op& one) { return one.kind == kind; });
  }

  template <class Is>
  Op& op_that(int which, const Is& is) {
    for (Op& one : step().ops) {
      if (is(one) && which-- == 0) return one;
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
  model::ModelSpec spec_;
  Plan plan_;
};

class StageBugs : public BugsOfStage {
 protected:
  StageBugs() : BugsOfStage(1, 1, false) {}
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

// The first stage, whose backward delays its products.
class DelayedBugs : public BugsOfStage {
 protected:
  DelayedBugs() : BugsOfStage(0, 1, false, PipelineOrder::kDelayedProducts) {}

  Access& access_of(const Op& of, Mode mode, ValueKind kind) {
    for (uint32_t a = of.access_begin; a < of.access_end; ++a) {
      Access& one = step().accesses[a];
      if (one.mode == mode && one.value.kind == kind) return one;
    }
    ADD_FAILURE() << "no such access";
    return access(of);
  }
  Op& back(int which) {
    return op_that(which, [&](const Op& one) {
      return one.kind == OpKind::kBackward && one.segment > 0 && one.part == 0;
    });
  }
};

TEST_F(DelayedBugs, ThePlanWithoutThemIsAccepted) {
  const VerifyReport report = verify(plan_, spec_);
  EXPECT_TRUE(report.ok()) << report.violations.front().text;
  EXPECT_GT(std::ranges::count(step().ops, OpKind::kWeightGradient, &Op::kind), 8);
}

TEST_F(DelayedBugs, OperandsOfAnotherMicroBatchAreValue) {
  access_of(op(OpKind::kWeightGradient), Mode::kRead, ValueKind::kOperands).value.index = 1;
  expect("value");
}

TEST_F(DelayedBugs, OperandsInThePlaceOfAnotherWindowAreStale) {
  Op& one = op(OpKind::kWeightGradient);
  Access& operands = access_of(one, Mode::kRead, ValueKind::kOperands);
  for (const Op& other : step().ops) {
    if (other.kind != OpKind::kWeightGradient || other.segment != one.segment) continue;
    const Access& others = access_of(other, Mode::kRead, ValueKind::kOperands);
    if (others.offset == operands.offset) continue;
    operands.offset = others.offset;
    break;
  }
  expect("stale");
}

TEST_F(DelayedBugs, PartOfTheOperandsIsCoverage) {
  access_of(op(OpKind::kWeightGradient), Mode::kRead, ValueKind::kOperands).bytes -= 4096;
  expect("coverage");
}

TEST_F(DelayedBugs, ProductsOfAnotherSegmentAreValue) {
  Op& one = op(OpKind::kWeightGradient);
  one.segment = op_that(0, [&](const Op& other) {
                  return other.kind == one.kind && other.segment != one.segment;
                }).segment;
  expect("value");
}

TEST_F(DelayedBugs, ABackwardWithoutOperandsIsCoverage) {
  access_of(back(0), Mode::kWrite, ValueKind::kOperands).value = {.kind = ValueKind::kScratch};
  expect("coverage");
}

TEST_F(DelayedBugs, ANormsGradientThatBeginsAgainIsCoverage) {
  const Op& last = op_that(0, [&](const Op& one) {
    return one.kind == OpKind::kBackward && one.segment > 0 && one.micro_batch == 7;
  });
  access_of(last, Mode::kRead, ValueKind::kNormGradient).value = {.kind = ValueKind::kScratch};
  expect("coverage");
}

TEST_F(DelayedBugs, ProductsThatLeaveOutTheNormsAreCoverage) {
  const Op& last = op_that(0, [&](const Op& one) {
    return one.kind == OpKind::kWeightGradient && one.micro_batch == 7;
  });
  access_of(last, Mode::kRead, ValueKind::kNormGradient).value = {.kind = ValueKind::kScratch};
  expect("coverage");
}

TEST_F(DelayedBugs, NormsThatAreTakenTooEarlyAreValue) {
  const Op& last = op_that(0, [&](const Op& one) {
    return one.kind == OpKind::kWeightGradient && one.micro_batch == 7;
  });
  --access_of(last, Mode::kRead, ValueKind::kNormGradient).value.index;
  expect("value");
}

TEST_F(DelayedBugs, APlanThatSaysThatNothingIsDelayedIsContract) {
  plan_.windows.order = PipelineOrder::kOneForwardOneBackward;
  expect("contract");
}

// The last stage, with the embedding and two other sections.
class TiedStageBugs : public BugsOfStage {
 protected:
  TiedStageBugs() : BugsOfStage(2, 2, true) {}

  Op& back_through_embedding(int which) {
    return op_that(
        which, [&](const Op& one) { return one.kind == OpKind::kBackward && one.segment == 0; });
  }
};

TEST_F(TiedStageBugs, ThePlanWithoutThemIsAccepted) {
  ASSERT_EQ(spec_.stage.sections.size(), 3u);
  const VerifyReport report = verify(plan_, spec_);
  EXPECT_TRUE(report.ok()) << report.violations.front().text;
}

TEST_F(TiedStageBugs, AnEmbeddingThatAddsItsGradientBeforeTheHeadIsContributions) {
  const Op& first = back_through_embedding(0);
  for (uint32_t a = first.access_begin; a < first.access_end; ++a) {
    Value& value = step().accesses[a].value;
    if (value.kind == ValueKind::kGradient) value.index -= 7;
  }
  expect("contributions");
}

TEST_F(TiedStageBugs, AGradientThatWaitsInThePlaceOfAnotherIsStale) {
  const auto is_for_embedding = [&](const Op& one) {
    return one.kind == OpKind::kRecv && access(one).value.segment == 0;
  };
  access(op_that(1, is_for_embedding)).offset = access(op_that(0, is_for_embedding)).offset;
  expect("stale");
}

TEST_F(TiedStageBugs, AnOutputOfAnotherSectionIsMessages) {
  access(op(OpKind::kSend, 0)).value.segment = spec_.stage.sections[1].end_segment - 2;
  expect("messages");
}

TEST_F(TiedStageBugs, AScheduleOfFewerLapsIsLayout) {
  spec_.stage.route.laps = 1;
  expect("layout");
}

TEST_F(TiedStageBugs, AnEmbeddingOnTheFirstRankIsLayout) {
  spec_.stage.route.embeds_on_last = false;
  expect("layout");
}

TEST_F(TiedStageBugs, ASectionThatLeavesOutASegmentIsLayout) {
  ++spec_.stage.sections[1].first_segment;
  expect("layout");
}

TEST_F(TiedStageBugs, ASectionWithoutAnEndIsLayout) {
  --spec_.stage.sections.back().end_segment;
  expect("layout");
}

}  // namespace
}  // namespace strata::plan
