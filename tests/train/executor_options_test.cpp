// SPDX-License-Identifier: Apache-2.0
// What a run's options and its plan make of the executor's: stripes by the speed of each drive.
#include "engine/train/executor_options.h"

#include <gtest/gtest.h>

namespace strata::train {
namespace {

TEST(ExecutorOptions, DrivesThatDifferAreStripedByTheirSpeed) {
  config::Options options;
  options.nvme = {"/a", "/b"};
  RunPlan plan;
  EXPECT_TRUE(executor_options(options, plan, 0, {}).volume.weights.empty());
  plan.nvme_weights = {3, 1};
  EXPECT_EQ(executor_options(options, plan, 0, {}).volume.weights, (std::vector<double>{3, 1}));
}

}  // namespace
}  // namespace strata::train
