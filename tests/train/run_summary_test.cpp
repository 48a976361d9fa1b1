// SPDX-License-Identifier: Apache-2.0
#include "engine/train/run_summary.h"

#include <gtest/gtest.h>

namespace strata::train {
namespace {

TEST(RunSummary, SkippedStepsHaveNoTokens) {
  config::Options options;
  options.micro_batch = 2;
  options.sequence_length = 100;
  TrainResult result;
  result.first_step = 1;
  result.last_step = 10;
  result.skipped_steps = 6;
  result.train_s = 2;
  EXPECT_EQ(tokens_per_s(options, result), 4 * 2 * 100 / 2.0);
}

}  // namespace
}  // namespace strata::train
