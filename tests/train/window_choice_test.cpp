// SPDX-License-Identifier: Apache-2.0
// When a plan passes micro-batches in windows: where that is faster, or the only way that fits. And
// when stages are several chunks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/base/units.h"
#include "engine/plan/refusal.h"
#include "tests/train/plan_fixture.h"

namespace strata::train {
namespace {

model::Architecture small_llama() {
  model::Architecture at = llama(16, 512);
  at.vocabulary = 512;
  return at;
}

config::Options options_with(int64_t host_mib) {
  config::Options options;
  options.recipe = Recipe::kFp32;
  options.sequence_length = 512;
  options.accumulate = 24;
  options.threads = 1;
  options.host_memory = host_mib * kMiB;
  options.nvme = {"/of/that/machine"};
  return options;
}

RunPlan plan_with(config::Options options, int64_t windows = 0) {
  options.pipeline_windows = windows;
  return planned(profile("small-2core"), small_llama(), options);
}

TEST(WindowChoice, WindowsAreChosenWhereActivationsOfAllDoNotFit) {
  const config::Options options = options_with(400);
  const RunPlan chosen = plan_with(options);
  const RunPlan one = plan_with(options, 1);
  EXPECT_GT(chosen.input.windows.count, 1);
  EXPECT_EQ(one.input.windows.count, 1);
  EXPECT_LT(chosen.predicted_step_s, 0.9 * one.predicted_step_s);
  EXPECT_GT(chosen.candidates, 0);
  const std::string line = fmt::format("\nwindows  {} of ", chosen.input.windows.count);
  EXPECT_NE(plan_table(chosen, report_of(chosen)).find(line), std::string::npos)
      << plan_table(chosen, report_of(chosen));
  EXPECT_EQ(plan_table(one, report_of(one)).find("\nwindows"), std::string::npos);
}

TEST(WindowChoice, OneWindowIsChosenWhereAllFit) {
  EXPECT_EQ(plan_with(options_with(64 * 1024)).input.windows.count, 1);
}

// Bytes of host memory for want of which a plan is refused.
int64_t need_of(const config::Options& options, int64_t windows = 0) {
  try {
    plan_with(options, windows);
  } catch (const plan::DoesNotFit& why) {
    return why.shortages().front().need_bytes;
  }
  return 0;
}

// A text has one micro-batch, which all windows but one do not have.
TEST(WindowChoice, GenerationReadsTheWeightsOnce) {
  const auto ops = [](int64_t windows) {
    const RunPlan run = plan_with(options_with(400), windows);
    return run.ranks.front().program(plan::ProgramName::kGenerate).ops.size();
  };
  EXPECT_LT(ops(24), 2 * ops(1));
}

class WindowChoiceOfMode : public testing::TestWithParam<double> {};

// Without clipping an update may be done in the backward or be deferred.
INSTANTIATE_TEST_SUITE_P(Clip, WindowChoiceOfMode, testing::Values(0.0, 1.0));

// Without drives all checkpoints are in memory.
TEST_P(WindowChoiceOfMode, ARunFitsThatDoesNotFitInOneWindow) {
  config::Options options = options_with(100);
  options.clip = GetParam();
  options.offload = config::Offload::kHost;
  const int64_t one = need_of(options, 1);
  const int64_t least = need_of(options);
  EXPECT_LT(least, one - 200 * kMiB);
  const auto fits = [&](int64_t bytes) {
    options.host_memory = bytes;
    const PlanBasis basis = basis_of(profile("small-2core"), small_llama(), options);
    EXPECT_NO_THROW(require_fit(basis.spec, basis.options, basis.facts)) << bytes;
    EXPECT_EQ(plan_with(options).input.windows.count, 24) << bytes;
    EXPECT_GT(need_of(options, 1), 0) << bytes;
  };
  fits(one - kMiB);
  fits(least + kMiB);
  options.host_memory = least - kMiB;
  EXPECT_GT(need_of(options), 0);
}

// Activations want many windows, and ops of windows take memory too.
TEST(WindowChoice, SomeWindowsFitWhereNeitherOneNorAllDo) {
  model::Architecture small = llama(3, 512);
  small.hidden = 64;
  small.head_size = 16;
  small.feed_forward = 176;
  small.vocabulary = 400;
  config::Options options = options_with(4);
  options.recipe = Recipe::kBf16;
  options.micro_batch = 2;
  options.accumulate = 64;
  const auto need = [&](int64_t windows) {
    options.pipeline_windows = windows;
    try {
      planned(profile("small-2core"), small, options);
    } catch (const plan::DoesNotFit& why) {
      return why.shortages().front().need_bytes;
    }
    return int64_t{0};
  };
  const int64_t some = need(8);
  ASSERT_LT(some, std::min(need(1), need(64)) - kMiB);
  EXPECT_LE(need(0), some);
  options.host_memory = some + kMiB;
  const int count = planned(profile("small-2core"), small, options).input.windows.count;
  EXPECT_TRUE(count == 8 || count == 16) << count;
}

// Stages of a pipeline, each of which may be several chunks of blocks.
RunPlan staged_plan(int64_t stages, int64_t chunks, int64_t micro_batches,
                    int64_t host_mib = 16 * 1024) {
  config::Options options = options_with(host_mib);
  options.nvme = {};
  options.offload = config::Offload::kHost;
  options.ranks = options.pipeline_ranks = stages;
  options.threads = stages;
  options.pipeline_chunks = chunks;
  options.accumulate = micro_batches;
  return planned(profile("small-2core"), small_llama(), options);
}

TEST(ChunkChoice, ChunksAreChosenWhereRanksWouldWait) {
  const RunPlan one = staged_plan(4, 1, 4);
  const RunPlan chosen = staged_plan(4, 0, 4);
  const int chunks = chosen.input.spec->stage.route.laps;
  EXPECT_GT(chunks, 1);
  EXPECT_EQ(one.input.spec->stage.route.laps, 1);
  EXPECT_LT(chosen.predicted_step_s, 0.97 * one.predicted_step_s);
  EXPECT_EQ(chosen.predicted_step_s, staged_plan(4, chunks, 4).predicted_step_s);
  for (const plan::Plan& plan : chosen.ranks) EXPECT_EQ(plan.windows.count, 4);
}

// The last stage has the head too, whose state is the first that has no room.
TEST(StagePlans, DrivesOfALaterStageAloneAreALineOfTheTable) {
  config::Options options = options_with(0);
  options.ranks = options.pipeline_ranks = 2;
  options.pipeline_chunks = 1;
  options.accumulate = 4;
  const auto nvme_of = [](const RunPlan& run, size_t stage) {
    return run.totals.of_stages[stage][static_cast<size_t>(plan::Arena::kNvme)];
  };
  for (int64_t mib = 880; mib > 780; mib -= 20) {
    options.host_memory = mib * kMiB;
    const RunPlan run = planned(profile("small-2core"), small_llama(), options);
    if (nvme_of(run, 1) == 0) continue;
    ASSERT_EQ(nvme_of(run, 0), 0) << mib;
    const std::string table = plan_table(run, report_of(run));
    EXPECT_NE(table.find("\nnvme     0 B of "), std::string::npos) << table;
    return;
  }
  FAIL() << "no plan used a drive";
}

// More chunks keep the inputs of more windows.
TEST(ChunkChoice, FewerAreChosenWhereMoreDoNotFit) {
  const auto need_mib = [](int64_t chunks) {
    try {
      staged_plan(4, chunks, 4, 1);
    } catch (const plan::DoesNotFit& why) {
      return ceil_div(why.shortages().front().need_bytes, kMiB);
    }
    return int64_t{0};
  };
  const int64_t one = need_mib(1), four = need_mib(4);
  ASSERT_GT(four, one + 1);
  EXPECT_THROW(staged_plan(4, 4, 4, four - 1), plan::DoesNotFit);
  const RunPlan chosen = staged_plan(4, 0, 4, four - 1);
  EXPECT_LT(chosen.input.spec->stage.route.laps, 4);
  EXPECT_GT(chosen.predicted_step_s, 0);
  EXPECT_EQ(staged_plan(4, 0, 4, one + 1).input.spec->stage.route.laps, 1);
}

TEST(ChunkChoice, OneIsEnoughWhereFewWaitOrBlocksAreFew) {
  EXPECT_EQ(staged_plan(2, 0, 48).input.spec->stage.route.laps, 1);
  EXPECT_EQ(staged_plan(16, 0, 2).input.spec->stage.route.laps, 1);  // 16 blocks
}

}  // namespace
}  // namespace strata::train
