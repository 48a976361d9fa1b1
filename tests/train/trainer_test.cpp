// SPDX-License-Identifier: Apache-2.0
// A run as a whole, in this process: what comes before what, how it ends when it is asked to, and
// which steps it makes.
#include "engine/train/trainer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "engine/checkpoint/checkpoint.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/log_capture.h"
#include "tests/train/training_run.h"

namespace strata::train {
namespace {

namespace fs = std::filesystem;

TEST_F(Training, SavesBeforeItEvaluates) {
  write_tokens(64);
  options_.steps = 3;
  options_.eval_every = 2;
  options_.checkpoint_every = 2;
  run();
  EXPECT_EQ(log_, "step 1\nstep 2\nsaved 2\nevaluated 2\nstep 3\nsaved 3\nevaluated 3\n");
}

// On rank 0, whose part takes as long as any other's.
TEST_F(Training, SaysHowMuchOfACheckpointIsWritten) {
  write_tokens(64);
  options_.steps = 1;
  for (const int ranks : {1, 2}) {
    options_.ranks = ranks;
    int64_t done = 0;
    int64_t total = 0;
    job_.events.work = [&](std::string_view what, int64_t now, int64_t of) {
      if (what != "writing a checkpoint") return;
      EXPECT_EQ(now, done + 1);
      done = now;
      total = of;
    };
    run();
    EXPECT_GT(done, 1) << "ranks " << ranks;
    EXPECT_EQ(done, total);
  }
}

TEST_F(Training, RoundsItsEpochsToStepsOnce) {
  write_tokens(165);
  options_.micro_batch = 16;
  options_.accumulate = 4;
  options_.ranks = 2;
  const auto steps = [&](double epochs) {
    options_.epochs = epochs;
    return planned_steps(options_, open_data());
  };
  EXPECT_EQ(steps(0), 2);  // 165 rows of 128 a step
  EXPECT_EQ(steps(1), 2);
  EXPECT_EQ(steps(3), 4);  // 495 rows
  EXPECT_EQ(steps(0.5), 1);
  EXPECT_EQ(steps(128), 165);
  write_tokens(10);
  options_.micro_batch = 11;
  options_.accumulate = options_.ranks = 1;
  EXPECT_EQ(steps(1.1), 1);  // 1.1 * 10 is a little more than 11
}

TEST_F(Training, WarnsWhereOneStepIsMoreThanItsEpochs) {
  write_tokens(20);
  options_.micro_batch = 1;
  const auto warning = [&](int64_t accumulate, double epochs, int64_t steps) {
    options_.accumulate = accumulate;
    options_.epochs = epochs;
    options_.steps = steps;
    const test::LogCapture captured;
    warn_of_long_step(options_, open_data());
    return captured.text();
  };
  EXPECT_NE(warning(100, 1, 0).find("epochs: 1: a step takes 100 samples of data with 20, so the "
                                    "run has one step of 5 epochs"),
            std::string::npos);
  EXPECT_NE(warning(21, 0, 0), "");
  EXPECT_EQ(warning(20, 1, 0), "");
  EXPECT_EQ(warning(100, 5, 0), "");
  EXPECT_EQ(warning(100, 0, 1), "") << "as many steps as were asked for";
}

// By the samples of a step, whoever computes them.
TEST_F(Training, ScalesItsLearningRate) {
  write_tokens(64);
  options_.steps = 1;
  options_.schedule = config::Schedule::kConstant;
  options_.lr = 1e-4;
  options_.lr_batch = 2;
  options_.micro_batch = 2;
  const auto lr_with = [&](config::LrScaling scaling, int64_t accumulate, int64_t ranks) {
    options_.lr_scaling = scaling;
    options_.accumulate = accumulate;
    options_.ranks = ranks;
    steps_.clear();
    run();
    return steps_.at(0).lr;
  };
  EXPECT_DOUBLE_EQ(lr_with(config::LrScaling::kNone, 4, 1), 1e-4);
  EXPECT_DOUBLE_EQ(lr_with(config::LrScaling::kLinear, 4, 1), 4e-4);
  EXPECT_DOUBLE_EQ(lr_with(config::LrScaling::kLinear, 2, 2), 4e-4);
  EXPECT_DOUBLE_EQ(lr_with(config::LrScaling::kSqrt, 2, 2), 2e-4);
}

TEST_F(Training, SavesWhenTheLastCheckpointIsLongAgo) {
  write_tokens(64);
  options_.steps = 3;
  for (const int ranks : {1, 2}) {
    log_.clear();
    options_.ranks = ranks;
    job_.checkpoint_every_s = 1e-9;
    run();
    EXPECT_EQ(log_, "step 1\nsaved 1\nstep 2\nsaved 2\nstep 3\nsaved 3\n");
    log_.clear();
    job_.checkpoint_every_s = 3600;
    run();
    EXPECT_EQ(log_, "step 1\nstep 2\nstep 3\nsaved 3\n");
  }
}

TEST_F(Training, ThatIsAskedToStopEvaluatesNothing) {
  write_tokens(64);
  options_.steps = 1000;
  options_.eval_every = 1000;
  stop_ = true;
  for (const int ranks : {1, 2}) {
    log_.clear();
    options_.ranks = ranks;
    const TrainResult result = run();
    EXPECT_TRUE(result.stopped);
    EXPECT_FALSE(result.held_out_loss);
    EXPECT_EQ(log_, "step 1\nsaved 1\n");
  }
}

// The evaluation would take minutes.
TEST_F(Training, IsStoppedInTheMiddleOfAnEvaluation) {
  write_tokens(200'000);
  options_.steps = 2;
  options_.eval_every = 1;
  options_.eval_fraction = 0.99;
  for (const int ranks : {1, 2}) {
    log_.clear();
    stop_ = false;
    phase_ = RunPhase::kLoad;
    options_.ranks = ranks;
    std::thread user([&] {
      while (phase_ != RunPhase::kEvaluation) std::this_thread::yield();
      stop_ = true;
    });
    const TrainResult result = run();
    user.join();
    EXPECT_TRUE(result.stopped);
    EXPECT_EQ(result.last_step, 1);
    EXPECT_EQ(log_, "step 1\nsaved 1\n");
    EXPECT_TRUE(fs::exists(checkpoint::checkpoint_path(directory_ / "checkpoints", 1)));
  }
}

TEST_F(Training, ThatIsResumedAndAskedToStopMakesNoStep) {
  write_tokens(64);
  options_.steps = 1000;
  stop_ = true;
  for (const int ranks : {1, 2}) {
    options_.ranks = ranks;
    job_.resume_from = "";
    run();
    log_.clear();
    job_.resume_from = checkpoint::checkpoint_path(directory_ / "checkpoints", 1);
    const TrainResult result = run();
    EXPECT_TRUE(result.stopped);
    EXPECT_EQ(result.last_step, 1);
    EXPECT_EQ(log_, "");
  }
}

// It is not the end of the run: the evaluation is still to come.
TEST_F(Training, ThatIsStoppedInALastEvaluationIsStoppedWhenItIsMadeUpForToo) {
  write_tokens(200'000);
  options_.steps = options_.eval_every = 1;
  options_.eval_fraction = 0.99;
  std::thread user([&] {
    while (phase_ != RunPhase::kEvaluation) std::this_thread::yield();
    stop_ = true;
  });
  EXPECT_FALSE(run().held_out_loss);
  user.join();
  job_.resume_from = checkpoint::checkpoint_path(directory_ / "checkpoints", 1);
  const TrainResult result = run();
  EXPECT_TRUE(result.stopped);
  EXPECT_FALSE(result.held_out_loss);
}

// Records whose prompts fill whole samples: with samples of 8 tokens, those of steps 1 and 2, 5 and
// 6, and so on have no target.
class WithoutTargets : public Training {
 protected:
  WithoutTargets() : Training("five_heads") {
    tokenizer_.emplace(test::byte_tokenizer());
    options_.shuffle = false;
    options_.schedule = config::Schedule::kConstant;
    options_.lr = 1e-2;
    options_.weight_decay = 0.1;
    write_records(24);
  }

  // Each record has 32 tokens, but for a first prompt of other length.
  void write_records(size_t first_prompt) {
    options_.data = {directory_ / "data.jsonl"};
    std::ofstream file(options_.data.front());
    for (int record = 0; record < 6; ++record) {
      file << R"({"prompt":")" << std::string(record == 0 ? first_prompt : 24, 'a')
           << R"(","completion":"bcdefgh"})"
           << "\n";
    }
  }

  uint64_t state_after(int64_t steps) {
    fs::remove_all(directory_ / "checkpoints");
    steps_.clear();
    options_.steps = steps;
    return run().state_hash;
  }
};

TEST_F(WithoutTargets, AStepUpdatesNothingAndSaysSo) {
  for (const double clip : {1.0, 0.0}) {
    options_.clip = clip;
    const uint64_t after_4 = state_after(4);
    EXPECT_NE(after_4, state_after(3));
    EXPECT_EQ(after_4, state_after(5));
    EXPECT_EQ(after_4, state_after(6));
    EXPECT_NE(after_4, state_after(7));
    ASSERT_EQ(steps_.size(), 7u);
    for (const StepMetrics& step : steps_) {
      const bool is_empty = (step.step - 1) % 4 < 2;
      EXPECT_EQ(step.skip == Skip::kNoTarget, is_empty) << step.step;
      EXPECT_EQ(std::isnan(step.loss), is_empty) << step.step;
      EXPECT_EQ(step.tokens == 0, is_empty) << step.step;
    }
  }
}

// Its samples are those of the other run from its third on.
TEST_F(WithoutTargets, AStepIsNotCountedByTheBiasCorrection) {
  const uint64_t after_empty_steps = state_after(4);
  write_records(8);
  EXPECT_EQ(state_after(2), after_empty_steps);
}

TEST_F(WithoutTargets, AResumedRunCountsTheSameUpdates) {
  const uint64_t whole = state_after(8);
  state_after(6);
  job_.resume_from = checkpoint::checkpoint_path(directory_ / "checkpoints", 6);
  options_.steps = 8;
  EXPECT_EQ(run().state_hash, whole);
}

}  // namespace
}  // namespace strata::train
