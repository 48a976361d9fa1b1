// SPDX-License-Identifier: Apache-2.0
// A drive that becomes slow is reported once a halving and by name; a lane with little to do is
// not.
#include "io/speed_watch.h"

#include <gtest/gtest.h>

#include "scratch_dir.h"

namespace strata::io {
namespace {

constexpr uint64_t kMi = 1 << 20;

// Feeds `seconds` of full traffic at a rate, alternating over two files; returns the reports.
std::vector<SlowReport> feed(SpeedWatch& watch, double& now_s, double seconds, double bytes_per_s,
                             bool full = true, double slow_file_latency_s = 1e-3) {
  std::vector<SlowReport> reports;
  const double end_s = now_s + seconds;
  for (uint32_t file = 0; now_s < end_s; file ^= 1) {
    now_s += kMi / bytes_per_s;
    if (const auto report =
            watch.add(file, kMi, file == 1 ? slow_file_latency_s : 1e-3, now_s, full)) {
      reports.push_back(*report);
    }
  }
  return reports;
}

TEST(SpeedWatch, ASteadyDriveIsNotReported) {
  SpeedWatch watch(2);
  double now_s = 5;
  EXPECT_TRUE(feed(watch, now_s, 60, 1e9).empty());
  EXPECT_TRUE(feed(watch, now_s, 60, 0.4e9).empty());  // reads beside writes
}

TEST(SpeedWatch, ASlowDriveIsReportedOnceAndByName) {
  SpeedWatch watch(2);
  double now_s = 5;
  feed(watch, now_s, 20, 2e9);
  const auto reports = feed(watch, now_s, 60, 0.2e9, true, 50e-3);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].file, 1u);
  EXPECT_NEAR(reports[0].bytes_per_s, 0.2e9, 0.02e9);
  EXPECT_NEAR(reports[0].best_bytes_per_s, 2e9, 0.05e9);
  EXPECT_EQ(feed(watch, now_s, 60, 0.05e9).size(), 1u);
}

TEST(SpeedWatch, ALaneWithLittleToDoIsNotSlow) {
  SpeedWatch watch(2);
  double now_s = 5;
  feed(watch, now_s, 20, 2e9);
  EXPECT_TRUE(feed(watch, now_s, 60, 0.1e9, false).empty());
}

// Through a channel: from the 2000th I/O on, the simulated drive takes a hundred times longer.
TEST(SpeedWatch, AChannelSaysWhichDirectoryIsSlow) {
  const ScratchDir directory(ScratchDir::kMemory);
  Volume volume(
      {.directories = {directory.path()}, .bytes = 4 * kMi, .allow_memory_filesystem = true});
  ChannelOptions options = {
      .backend = Backend::kSimulated, .depth = 2, .request_bytes = 64 << 10, .verify = false};
  options.simulated.latency_s_min = options.simulated.latency_s_max = 0.01;
  options.simulated.slow_from = 2000;
  options.simulated.slow_factor = 100;
  Channel channel(volume, options);
  testing::internal::CaptureStderr();
  const AlignedBuffer buffer(4 * kMi);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(run_one(channel, Direction::kRead, 0, buffer, 1), "");
  const std::string said = testing::internal::GetCapturedStderr();
  const std::string wanted =
      "scratch file in " + directory.path() + " became slow: 0.000 GB/s, it was 0.013 GB/s";
  EXPECT_NE(said.find(wanted), std::string::npos) << said;
  EXPECT_EQ(said.find("became slow"), said.rfind("became slow")) << said;
}

}  // namespace
}  // namespace strata::io
