// SPDX-License-Identifier: Apache-2.0
// What a run's options and its plan make of the executor's: stripes by the speed of each drive, and
// the room that such stripes leave.
#include "engine/train/executor_options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

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

TEST(ExecutorOptions, TheFirstDriveThatIsFullEndsItForAll) {
  const std::string here = testing::TempDir();
  const auto free = static_cast<double>(std::filesystem::space(here).available);
  const double noise = 0.02 * free;  // others use the drive too
  EXPECT_EQ(free_bytes_of({}), 0);
  EXPECT_NEAR(static_cast<double>(free_bytes_of({here})), free, noise);
  // One file system has its space once, however the stripes are divided.
  EXPECT_NEAR(static_cast<double>(free_bytes_of({here, here})), free, noise);
  EXPECT_NEAR(static_cast<double>(free_bytes_of({here, here}, {3, 1})), free, noise);
  EXPECT_THROW(free_bytes_of({here, "/proc/nonexistent"}), Error);
  const std::string memory = "/dev/shm";
  if (!std::filesystem::exists(memory)) return;
  // Three quarters go to the first, so it is full at four thirds of its room.
  const auto other = static_cast<double>(std::filesystem::space(memory).available);
  EXPECT_NEAR(static_cast<double>(free_bytes_of({here, memory}, {3, 1})),
              std::min(free * 4 / 3, other * 4), 2 * noise);
}

}  // namespace
}  // namespace strata::train
