// SPDX-License-Identifier: Apache-2.0
// The checkpoint with the least held-out loss stays through rotation, crashes and resumes, and the
// count of evaluations that did not lower the loss goes on.
#include "engine/train/best_checkpoint.h"

#include "engine/checkpoint/checkpoint_link.h"
#include "engine/train/metrics.h"
#include "tests/support/log_capture.h"
#include "tests/support/small_model.h"
#include "tests/train/written_checkpoint.h"

namespace strata::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::linked_step;

TEST(HeldOutLosses, CountEvaluationsSinceTheLeast) {
  HeldOutLosses losses;
  EXPECT_TRUE(losses.add(10, 5.0));
  EXPECT_FALSE(losses.add(20, 5.0)) << "the same is not less";
  EXPECT_FALSE(losses.add(30, NAN));
  EXPECT_EQ(losses.since_best, 2);
  EXPECT_TRUE(losses.add(40, 4.5));
  EXPECT_EQ(losses.best_step, 40);
  EXPECT_EQ(losses.since_best, 0);
}

class BestCheckpoints : public checkpoint::WrittenCheckpoints {
 protected:
  void checkpoint_of(int64_t step) { write(step, {.spec = &spec_}); }
  void evaluated(int64_t step, double loss) {
    MetricsWriter(run_ + "/metrics.jsonl", step).append(EvaluationMetrics{step, loss});
  }
  BestCheckpoint begun(int64_t last_step, int64_t patience = 0) {
    BestCheckpoint best(run_, {.keeps = true, .patience = patience});
    best.begin(last_step);
    return best;
  }
  void rotate() { checkpoint::keep_last(directory_, 1, linked_step(best_link(run_))); }
  bool has(int64_t step) { return fs::exists(checkpoint::checkpoint_path(directory_, step)); }

  const std::string run_ = home_.path();
  const model::ModelSpec spec_ = checkpoint::spec_for(test::small_llama(), 1);
};

TEST_F(BestCheckpoints, RotationLeavesTheBestAlone) {
  BestCheckpoint best = begun(0);
  for (const auto& [step, loss] : {std::pair(1, 3.0), {2, 2.0}, {3, 2.5}, {4, 2.25}}) {
    checkpoint_of(step);
    if (best.add(step, loss)) best.keep(step);
    rotate();
  }
  EXPECT_EQ(linked_step(best_link(run_)), 2);
  EXPECT_EQ(best.kept_step(), 2);
  EXPECT_EQ(best.kept_loss(), 2.0);
  EXPECT_FALSE(has(1) || has(3));
  EXPECT_TRUE(has(2) && has(4));
  EXPECT_EQ(fs::read_symlink(best_link(run_)), "checkpoints/step-000002") << "a run may be moved";
}

TEST_F(BestCheckpoints, AResumedRunKnowsItsBestAndItsCount) {
  checkpoint_of(2);
  evaluated(1, 3.0);
  evaluated(2, 2.0);
  evaluated(3, 2.5);
  checkpoint::link_checkpoint(best_link(run_), directory_, 2);
  BestCheckpoint best = begun(3, 2);
  EXPECT_EQ(best.kept_step(), 2);
  EXPECT_FALSE(best.out_of_patience());
  EXPECT_FALSE(best.add(4, 2.25));
  EXPECT_TRUE(best.out_of_patience());
  EXPECT_EQ(begun(2, 1).losses().since_best, 0) << "what came after the step does not count";
}

// A kill between the evaluation's record and the link, when the step had a checkpoint anyway.
TEST_F(BestCheckpoints, ALinkThatACrashLeftOutIsMade) {
  checkpoint_of(1);
  checkpoint_of(2);
  evaluated(1, 3.0);
  checkpoint::link_checkpoint(best_link(run_), directory_, 1);
  evaluated(2, 2.0);
  EXPECT_EQ(begun(2).kept_step(), 2);
  EXPECT_EQ(linked_step(best_link(run_)), 2);
}

TEST_F(BestCheckpoints, ALinkToNothingIsRemovedAndTheNextEvaluationIsTheBest) {
  checkpoint_of(1);
  evaluated(1, 3.0);
  checkpoint::link_checkpoint(best_link(run_), directory_, 1);
  fs::remove_all(directory_ + "/step-000001");
  EXPECT_EQ(linked_step(best_link(run_)), std::nullopt);
  BestCheckpoint best = begun(1);
  EXPECT_FALSE(fs::is_symlink(best_link(run_)));
  EXPECT_TRUE(best.add(2, 4.0)) << "none is kept that is better";
  EXPECT_EQ(best.losses().best_step, 1) << "patience counts from the least of all";
}

// metrics.jsonl may have been moved away: then no other state is known to be better.
TEST_F(BestCheckpoints, WhatIsKeptStaysWhereItsLossIsLost) {
  checkpoint_of(1);
  checkpoint::link_checkpoint(best_link(run_), directory_, 1);
  const test::LogCapture captured;
  BestCheckpoint best = begun(2);
  EXPECT_NE(captured.text().find("is of step 1, whose held-out loss"), std::string::npos);
  EXPECT_FALSE(best.add(3, 0.5));
  EXPECT_EQ(best.kept_step(), 1);
  EXPECT_EQ(linked_step(best_link(run_)), 1);
}

TEST_F(BestCheckpoints, ALossThatWasLostIsKnownAgainWhenItsStepIsEvaluatedAgain) {
  checkpoint_of(1);
  checkpoint::link_checkpoint(best_link(run_), directory_, 1);
  const test::LogCapture captured;
  BestCheckpoint best = begun(1);
  EXPECT_FALSE(best.add(1, 2.0));
  EXPECT_EQ(best.kept_loss(), 2.0);
  EXPECT_FALSE(best.add(2, 2.5));
  EXPECT_TRUE(best.add(3, 1.5));
}

// The least loss was before --keep-best, and its state is gone.
TEST_F(BestCheckpoints, WhatIsKeptGivesWayToBetterStatesOnly) {
  checkpoint_of(2);
  evaluated(1, 1.0);
  evaluated(2, 2.0);
  checkpoint::link_checkpoint(best_link(run_), directory_, 2);
  BestCheckpoint best = begun(2);
  EXPECT_EQ(best.kept_step(), 2);
  EXPECT_FALSE(best.add(3, 2.5));
  EXPECT_TRUE(best.add(4, 1.5));
}

TEST_F(BestCheckpoints, AreNotKeptUnlessAsked) {
  BestCheckpoint best(run_, {.patience = 1});
  best.begin(0);
  EXPECT_FALSE(best.add(1, 3.0));
  EXPECT_FALSE(best.out_of_patience());
  EXPECT_FALSE(best.add(2, 3.5));
  EXPECT_TRUE(best.out_of_patience());
}

TEST_F(BestCheckpoints, SomethingElseOfThisNameIsRefusedAtTheStart) {
  require_place_for_best(run_);
  fs::create_symlink("nothing", best_link(run_));
  require_place_for_best(run_);
  fs::remove(best_link(run_));
  fs::create_directory(best_link(run_));
  try {
    require_place_for_best(run_);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_NE(std::string(error.what()).find("/best is no link to a checkpoint"), std::string::npos)
        << error.what();
  }
  EXPECT_TRUE(fs::is_directory(best_link(run_)));
}

}  // namespace
}  // namespace strata::train
