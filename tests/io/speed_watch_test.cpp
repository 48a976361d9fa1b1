// SPDX-License-Identifier: Apache-2.0
// A drive that becomes slow is reported once a halving and by name, also where it is one of
// several; a lane with little to do is not.
#include "io/speed_watch.h"

#include <gtest/gtest.h>

#include "aligned_buffer.h"
#include "tests/support/log_capture.h"

namespace strata::io {
namespace {

// Feeds `seconds` of traffic at a rate; returns the reports.
std::vector<SlowReport> feed(SpeedWatch& watch, double& now_s, double seconds, double bytes_per_s,
                             bool full = true) {
  std::vector<SlowReport> reports;
  for (const double end_s = now_s + seconds; now_s < end_s;) {
    now_s += kMi / bytes_per_s;
    if (const auto report = watch.add(kMi, now_s, full)) reports.push_back(*report);
  }
  return reports;
}

TEST(SpeedWatch, ASteadyDriveIsNotReported) {
  SpeedWatch watch;
  double now_s = 5;
  EXPECT_TRUE(feed(watch, now_s, 60, 1e9).empty());
  EXPECT_TRUE(feed(watch, now_s, 60, 0.4e9).empty());  // reads beside writes
}

TEST(SpeedWatch, ASlowDriveIsReportedOnceAHalving) {
  SpeedWatch watch;
  double now_s = 5;
  feed(watch, now_s, 20, 2e9);
  const auto reports = feed(watch, now_s, 60, 0.2e9);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_NEAR(reports[0].bytes_per_s, 0.2e9, 0.02e9);
  EXPECT_NEAR(reports[0].best_bytes_per_s, 2e9, 0.05e9);
  EXPECT_EQ(feed(watch, now_s, 60, 0.05e9).size(), 1u);
}

TEST(SpeedWatch, ALaneWithLittleToDoIsNotSlow) {
  SpeedWatch watch;
  double now_s = 5;
  feed(watch, now_s, 20, 2e9);
  EXPECT_TRUE(feed(watch, now_s, 60, 0.1e9, false).empty());
}

// Through a channel: from the 2000th I/O on, the simulated drive takes a hundred times longer.
TEST(SpeedWatch, AChannelSaysWhichDirectoryIsSlow) {
  const test::TemporaryDirectory directory("/dev/shm");
  Volume volume(
      {.directories = {directory.path()}, .bytes = 4 * kMi, .allow_memory_filesystem = true});
  ChannelOptions options = {
      .backend = Backend::kSimulated, .depth = 2, .request_bytes = 64 << 10, .verify = false};
  options.simulated.latency_s_min = options.simulated.latency_s_max = 0.01;
  options.simulated.slow_from = 2000;
  options.simulated.slow_factor = 100;
  Channel channel(volume, options);
  const strata::test::LogCapture captured;
  const AlignedBuffer buffer(4 * kMi);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(run_one(channel, Direction::kRead, 0, buffer, 1), "");
  const std::string said = captured.text();
  const std::string wanted =
      "scratch file in " + directory.path() + " became slow: 0.000 GB/s, at best 0.013 GB/s";
  EXPECT_NE(said.find(wanted), std::string::npos) << said;
  EXPECT_EQ(said.find("became slow"), said.rfind("became slow")) << said;
}

// Reads the volume again and again, with always four transfers under way.
void read_on(Channel& channel, const AlignedBuffer& buffer, int transfers) {
  std::vector<Transfer> reads(4);
  for (Transfer& read : reads) {
    read = transfer_of(Direction::kRead, 0, buffer, 1);
    channel.submit(&read);
  }
  while (transfers > 0) {
    if (channel.poll() == 0) channel.wait(0.1);
    for (Transfer& read : reads) {
      if (!read.done) continue;
      channel.submit(&read);
      --transfers;
    }
  }
  EXPECT_TRUE(drain(channel));
}

VolumeOptions four_files_in(const test::TemporaryDirectory& directory) {
  return {.directories = {directory.path()},
          .files_per_directory = 4,
          .bytes = 4 * kMi,
          .stripe_bytes = 64 << 10,
          .allow_memory_filesystem = true};
}

// All four are slowed down by the one that they wait for.
TEST(SpeedWatch, OneSlowDriveOfFourIsNamedAndNoOther) {
  const test::TemporaryDirectory directory("/dev/shm");
  for (const uint32_t depth : {8u, 16u}) {
    SCOPED_TRACE(depth);
    Volume volume(four_files_in(directory));
    ChannelOptions options = {
        .backend = Backend::kSimulated, .depth = depth, .request_bytes = 64 << 10, .verify = false};
    options.simulated.latency_s_min = 0.005;
    options.simulated.latency_s_max = 0.015;
    options.simulated.slow_from = 2000 * depth;
    options.simulated.slow_factor = 40;
    options.simulated.slow_file = 2;
    Channel channel(volume, options);
    const AlignedBuffer buffer(4 * kMi);
    const strata::test::LogCapture captured;
    read_on(channel, buffer, static_cast<int>(2000 * depth / 64) + 60);
    const std::string said = captured.text();
    EXPECT_NE(said.find("scratch file 3 of 4 in " + directory.path() + " became slow: "),
              std::string::npos)
        << said;
    EXPECT_EQ(said.find("became slow"), said.rfind("became slow")) << said;
  }
}

// A third of its speed is not enough to be called slow, and a lane that rests between bursts is
// busy in none of the pauses.
TEST(SpeedWatch, BurstsWithPausesAreNotSlow) {
  const test::TemporaryDirectory directory("/dev/shm");
  Volume volume(four_files_in(directory));
  ChannelOptions options = {
      .backend = Backend::kSimulated, .depth = 4, .request_bytes = 64 << 10, .verify = false};
  options.simulated.latency_s_min = options.simulated.latency_s_max = 0.01;
  options.simulated.slow_from = 4000;
  options.simulated.slow_factor = 3;
  Channel channel(volume, options);
  const AlignedBuffer buffer(4 * kMi);
  const strata::test::LogCapture captured;
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(run_one(channel, Direction::kRead, 0, buffer, 1), "");
    if (i > 100) channel.wait(5);
  }
  EXPECT_EQ(captured.text(), "");
}

}  // namespace
}  // namespace strata::io
