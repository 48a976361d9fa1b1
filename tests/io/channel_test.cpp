// SPDX-License-Identifier: Apache-2.0
// Every backend moves the same bytes: what is written under a tag is read back, across stripes,
// request sizes, depths and files; what is read under another tag, or was never written, is an
// error.
#include "io/channel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "aligned_buffer.h"

namespace strata::io {
namespace {

std::string backend_label(const testing::TestParamInfo<Backend>& info) {
  return info.param == Backend::kUring     ? "Uring"
         : info.param == Backend::kThreads ? "Threads"
                                           : "Simulated";
}

class ChannelTest : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (GetParam() != Backend::kUring) return;
    try {
      const Ring probe({.backend = Backend::kUring, .files = {{0, "stdin"}}});
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  ChannelOptions options() const {
    return {.backend = GetParam(), .depth = 8, .request_bytes = 256 << 10};
  }
};

TEST_P(ChannelTest, ReadsBackWhatWasWritten) {
  const test::TemporaryDirectory a, b, c;
  Volume volume(
      {.directories = {a.path(), b.path(), c.path()}, .weights = {1, 2.5, 1}, .bytes = 32 * kMi});
  Channel channel(volume, options());
  const AlignedBuffer written(8 * kMi - 4096, 1);
  const AlignedBuffer read(written.bytes());
  for (const uint64_t address : {uint64_t{0}, 10 * kMi, 24 * kMi}) {
    EXPECT_EQ(run_one(channel, Direction::kWrite, address, written, 7), "");
    std::memset(read.data(), 0, read.bytes());
    EXPECT_EQ(run_one(channel, Direction::kRead, address, read, 7), "");
    EXPECT_TRUE(read == written) << address;
  }
  const VolumeCounters totals = volume.counters();
  EXPECT_EQ(totals.bytes_read, 3 * written.bytes());
  EXPECT_EQ(totals.bytes_verified, totals.bytes_read);
  EXPECT_EQ(totals.bytes_written, totals.bytes_read);
}

TEST_P(ChannelTest, ManyTransfersInFlightAllFinish) {
  const test::TemporaryDirectory directory;
  Volume volume({.directories = {directory.path()}, .bytes = 64 * kMi});
  Channel channel(volume, options());
  std::vector<AlignedBuffer> written;
  std::vector<AlignedBuffer> read;
  for (uint64_t i = 0; i < 64; ++i) {
    written.emplace_back((1 + i % 16) * 16384, i);
    read.emplace_back(written[i].bytes(), 1000);
  }
  for (const Direction direction : {Direction::kWrite, Direction::kRead}) {
    std::vector<Transfer> transfers(64);
    for (uint64_t i = 0; i < 64; ++i) {
      transfers[i] =
          transfer_of(direction, i * kMi, (direction == Direction::kRead ? read : written)[i], i);
      channel.submit(&transfers[i]);
    }
    EXPECT_EQ(channel.in_flight(), 64u);
    ASSERT_TRUE(drain(channel));
    for (const Transfer& transfer : transfers) {
      EXPECT_TRUE(transfer.done);
      EXPECT_EQ(transfer.error, nullptr);
    }
  }
  for (uint64_t i = 0; i < 64; ++i) EXPECT_TRUE(written[i] == read[i]) << i;
}

TEST_P(ChannelTest, RegisteredMemoryMovesTheSameBytes) {
  const test::TemporaryDirectory directory;
  Volume volume({.directories = {directory.path()}, .bytes = 16 * kMi});
  const AlignedBuffer arena(4 * kMi, 3);
  const AlignedBuffer outside(4 * kMi, 0);
  ChannelOptions registered = options();
  registered.regions = {{arena.data(), 2 * kMi}, {arena.data() + 2 * kMi, 2 * kMi}};
  Channel channel(volume, registered);
  EXPECT_EQ(run_one(channel, Direction::kWrite, 0, arena, 1), "");
  EXPECT_EQ(run_one(channel, Direction::kRead, 0, outside, 1), "");
  EXPECT_TRUE(arena == outside);
}

// Else the drive would have an empty place for as long as the hash takes.
TEST(Channel, WritesThatWaitAreHashedBeforeAPlaceIsFree) {
  const test::TemporaryDirectory directory;
  Volume volume({.directories = {directory.path()}, .bytes = 8 * kMi});
  Channel channel(volume, {.backend = Backend::kSimulated, .depth = 2, .request_bytes = 256 << 10});
  const AlignedBuffer buffer(256 << 10, 1);
  std::vector<Transfer> writes;
  for (uint64_t i = 0; i < 6; ++i)
    writes.push_back(transfer_of(Direction::kWrite, i * kMi, buffer, 1));
  for (Transfer& write : writes) channel.submit(&write);
  EXPECT_EQ(channel.poll(), 0u);
  EXPECT_EQ(channel.stats().requests, 2u);
  const auto hashed = [&](uint64_t i) {
    return !volume.verify(i * kMi, buffer.data(), buffer.bytes(), 1).found;
  };
  EXPECT_TRUE(hashed(2) && hashed(3));
  EXPECT_FALSE(hashed(4)) << "no more than can be in flight";
  EXPECT_TRUE(drain(channel));
  EXPECT_TRUE(hashed(4) && hashed(5));
}

TEST_P(ChannelTest, AnotherTagIsAnError) {
  const test::TemporaryDirectory directory;
  Volume volume({.directories = {directory.path()}, .bytes = kMi});
  Channel channel(volume, options());
  const AlignedBuffer buffer(256 << 10, 1);
  EXPECT_EQ(run_one(channel, Direction::kWrite, 0, buffer, 1), "");
  const std::string error = run_one(channel, Direction::kRead, 0, buffer, 2);
  EXPECT_NE(error.find("wrong bytes read: scratch file in " + directory.path() + " at offset 0"),
            std::string::npos)
      << error;
  EXPECT_EQ(volume.counters().rereads, 2u);
}

TEST_P(ChannelTest, WhatWasNeverWrittenIsAnError) {
  const test::TemporaryDirectory directory;
  Volume volume({.directories = {directory.path()}, .bytes = kMi});
  Channel channel(volume, options());
  const std::string error = run_one(channel, Direction::kRead, 65536, AlignedBuffer(65536), 0);
  EXPECT_NE(error.find("read of a block that was not written"), std::string::npos) << error;
}

TEST_P(ChannelTest, AShorterReadOfAPartialBlockIsAnError) {
  const test::TemporaryDirectory directory;
  Volume volume({.directories = {directory.path()}, .bytes = kMi});
  Channel channel(volume, options());
  EXPECT_EQ(run_one(channel, Direction::kWrite, 0, AlignedBuffer(65536 + 8192, 5), 9), "");
  EXPECT_EQ(run_one(channel, Direction::kRead, 0, AlignedBuffer(65536), 9), "");
  EXPECT_EQ(run_one(channel, Direction::kRead, 65536, AlignedBuffer(8192), 9), "");
  EXPECT_NE(run_one(channel, Direction::kRead, 65536, AlignedBuffer(4096), 9), "");
}

TEST_P(ChannelTest, TwoChannelsOnTwoThreadsShareAVolume) {
  const test::TemporaryDirectory a, b;
  Volume volume({.directories = {a.path(), b.path()}, .bytes = 16 * kMi});
  std::atomic<int> right{0};
  const auto lane = [&](uint64_t address) {
    Channel channel(volume, options());
    const AlignedBuffer written(4 * kMi, address);
    const AlignedBuffer read(4 * kMi);
    for (uint64_t generation = 0; generation < 4; ++generation) {
      right += run_one(channel, Direction::kWrite, address, written, generation).empty();
      right +=
          run_one(channel, Direction::kRead, address, read, generation).empty() && read == written;
    }
  };
  std::thread other(lane, 8 * kMi);
  lane(0);
  other.join();
  EXPECT_EQ(right, 16);
}

TEST_P(ChannelTest, WakeEndsAWait) {
  const test::TemporaryDirectory directory;
  Volume volume({.directories = {directory.path()}, .bytes = kMi});
  ChannelOptions real_time = options();
  real_time.simulated.virtual_time = false;
  Channel channel(volume, real_time);
  channel.poll();
  std::atomic<bool> go{false};
  std::thread waker([&] {
    while (!go) std::this_thread::yield();
    channel.wake();
  });
  const double start_s = channel.now_s();
  go = true;
  constexpr double kLong_s = 60;
  channel.wait(kLong_s);
  EXPECT_LT(channel.now_s() - start_s, kLong_s / 2);
  waker.join();
  // A wait ends by itself after a second at most: many of them tell whether a wake-up before it is
  // lost.
  constexpr int kTimes = 100;
  const double again_s = channel.now_s();
  for (int i = 0; i < kTimes; ++i) {
    channel.wake();
    channel.wait(kLong_s);
  }
  EXPECT_LT(channel.now_s() - again_s, kTimes / 2);
}

// Of a transfer that fails, the bytes that nobody compared are counted apart: the volume, which
// checks the sum when it goes, would end the program over them otherwise.
TEST_P(ChannelTest, EveryByteThatArrivesIsVerifiedRejectedOrAbandoned) {
  const test::TemporaryDirectory directory;
  Volume volume({.directories = {directory.path()}, .bytes = 4 * kMi});
  Channel channel(volume, options());
  const AlignedBuffer buffer(2 * kMi, 1);
  EXPECT_EQ(run_one(channel, Direction::kWrite, 0, buffer, 1), "");
  EXPECT_EQ(run_one(channel, Direction::kRead, 0, buffer, 1), "");
  EXPECT_NE(run_one(channel, Direction::kRead, 0, buffer, 2), "");
  const VolumeCounters totals = volume.counters();
  EXPECT_EQ(totals.bytes_verified, 2 * kMi);
  EXPECT_GE(totals.bytes_rejected, 3 * (256u << 10));  // one request, read again twice
  EXPECT_GT(totals.bytes_abandoned, 0u);
  EXPECT_EQ(totals.bytes_read,
            totals.bytes_verified + totals.bytes_rejected + totals.bytes_abandoned);
  EXPECT_EQ(totals.bytes_read, channel.stats().bytes_read);
}

// A request that is back and not yet looked at when the channel goes.
TEST_P(ChannelTest, WhatArrivesAndIsNeverComparedIsAbandoned) {
  // Both reads must be back when one is looked at; on a busy machine that takes some tries.
  int64_t abandoned = 0;
  for (int tries = 0; tries < 20 && abandoned == 0; ++tries) {
    const test::TemporaryDirectory directory;
    Volume volume({.directories = {directory.path()}, .bytes = 4 * kMi});
    const AlignedBuffer buffer(kMi, 1);
    const AlignedBuffer other(kMi, 2);
    Transfer first = transfer_of(Direction::kRead, 0, buffer, 1);
    Transfer second = transfer_of(Direction::kRead, 2 * kMi, other, 1);
    {
      ChannelOptions whole = options();
      whole.request_bytes = kMi;
      whole.simulated.virtual_time = false;
      Channel channel(volume, whole);
      ASSERT_EQ(run_one(channel, Direction::kWrite, 0, buffer, 1), "");
      ASSERT_EQ(run_one(channel, Direction::kWrite, 2 * kMi, other, 1), "");
      channel.submit(&first);
      channel.submit(&second);
      std::this_thread::sleep_for(std::chrono::milliseconds(100 << std::min(tries, 4)));
      channel.poll();
    }
    const VolumeCounters totals = volume.counters();
    ASSERT_EQ(totals.bytes_read, totals.bytes_verified + totals.bytes_abandoned);
    abandoned = static_cast<int64_t>(totals.bytes_abandoned);
  }
  EXPECT_EQ(abandoned, static_cast<int64_t>(kMi));
}

// What the kernel still moves when the channel has gone would land in memory of somebody else. (A
// fast drive may be done in time; on the slow one of fuse_fault_test.cpp it never is.)
TEST_P(ChannelTest, DestructionWithTransfersInFlightLeavesTheMemoryAlone) {
  const test::TemporaryDirectory directory;
  Volume volume({.directories = {directory.path()}, .bytes = 16 * kMi});
  const AlignedBuffer written(16 * kMi, 1);
  const AlignedBuffer arriving(16 * kMi, 2);
  const AlignedBuffer expected(16 * kMi, 3);
  Transfer read = transfer_of(Direction::kRead, 0, arriving, 1);
  {
    Channel channel(volume, options());
    ASSERT_EQ(run_one(channel, Direction::kWrite, 0, written, 1), "");
    channel.submit(&read);
  }
  EXPECT_FALSE(read.done);
  std::memcpy(arriving.data(), expected.data(), expected.bytes());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(arriving == expected);
}

INSTANTIATE_TEST_SUITE_P(Backends, ChannelTest,
                         testing::Values(Backend::kUring, Backend::kThreads, Backend::kSimulated),
                         backend_label);

// Twelve bytes a parameter of writes are on their way when a weight is needed: its read has a queue
// of its own, so it waits for the one request that is booked on the drive, not for all of them.
TEST(Channel, AnUrgentReadIsNotBehindTheWrites) {
  const test::TemporaryDirectory directory("/dev/shm");
  Volume volume(
      {.directories = {directory.path()}, .bytes = 32 * kMi, .allow_memory_filesystem = true});
  RateLimiter limiter({.read_bytes_per_s = 10e6, .write_bytes_per_s = 10e6, .half_duplex = true});
  const ChannelOptions unlimited = {.request_bytes = 256 << 10};
  const ChannelOptions limited = {.request_bytes = 256 << 10, .limiter = &limiter};
  const AlignedBuffer weight(256 << 10, 1);
  const AlignedBuffer state(24 * kMi, 2);
  const AlignedBuffer arrived(weight.bytes());
  {
    Channel first(volume, unlimited);
    ASSERT_EQ(run_one(first, Direction::kWrite, 0, weight, 1), "");
  }
  Channel writes(volume, limited);
  Channel reads(volume, limited);
  Transfer write = transfer_of(Direction::kWrite, 8 * kMi, state, 2);
  writes.submit(&write);
  Transfer read = transfer_of(Direction::kRead, 0, arrived, 1);
  reads.submit(&read);
  while (!read.done) {
    writes.poll();
    if (reads.poll() == 0) reads.wait(1e-3);
  }
  EXPECT_EQ(read.error, nullptr);
  EXPECT_TRUE(arrived == weight);
  EXPECT_FALSE(write.done);
  EXPECT_LT(writes.stats().bytes_written, 6 * kMi);
  ASSERT_TRUE(drain(writes));
  EXPECT_EQ(write.error, nullptr);
}

// Two drives, of which the first fails a write while blocks for the other are hashed and wait.
TEST(Channel, WhatAFailedWriteDidNotReachIsNotBlamedOnItsDrive) {
  constexpr uint64_t kStripe = 64 << 10;
  const test::TemporaryDirectory a, b;
  Volume volume({.directories = {a.path(), b.path()}, .bytes = kMi, .stripe_bytes = kStripe});
  const AlignedBuffer older(8 * kStripe, 1);
  const AlignedBuffer newer(8 * kStripe, 2);
  const AlignedBuffer read(kStripe);
  ChannelOptions options = {.backend = Backend::kSimulated, .depth = 2, .request_bytes = kStripe};
  {
    Channel channel(volume, options);
    ASSERT_EQ(run_one(channel, Direction::kWrite, 0, older, 1), "");
  }
  options.simulated.faults = {{FaultKind::kEio, 0}};
  options.simulated.slow_from = 0;
  options.simulated.slow_file = 1;
  options.simulated.slow_factor = 100;
  Channel channel(volume, options);
  Transfer write = transfer_of(Direction::kWrite, 0, newer, 2);
  channel.submit(&write);
  channel.poll();
  const auto hashed = [&](uint64_t block) {
    return !volume.verify(block * kStripe, newer.data() + block * kStripe, kStripe, 2).found;
  };
  EXPECT_TRUE(hashed(3)) << "ready for the second drive, and not yet with it";
  EXPECT_FALSE(hashed(7)) << "what comes later still has the old checksum";
  ASSERT_TRUE(drain(channel));
  ASSERT_NE(write.error, nullptr);
  EXPECT_EQ(run_one(channel, Direction::kRead, kStripe, read, 2), "") << "it was written";
  for (const uint64_t block : {3, 5, 7}) {
    const std::string error = run_one(channel, Direction::kRead, block * kStripe, read, 2);
    EXPECT_NE(error.find("read of a block that was not written: scratch file in " + b.path()),
              std::string::npos)
        << error;
    EXPECT_NE(error.find("the write that was to replace it failed"), std::string::npos) << error;
  }
  EXPECT_EQ(volume.counters().rereads, 0u);
}

// Hashed ahead, and the channel went before it was written.
TEST(Channel, WhatAChannelThatWentHadNotWrittenIsNotBlamedOnTheDrive) {
  const test::TemporaryDirectory directory;
  Volume volume({.directories = {directory.path()}, .bytes = kMi});
  const AlignedBuffer buffer(512 << 10, 1);
  const ChannelOptions options = {
      .backend = Backend::kSimulated, .depth = 1, .request_bytes = 64 << 10};
  Transfer write = transfer_of(Direction::kWrite, 0, buffer, 1);
  {
    Channel channel(volume, options);
    channel.submit(&write);
    channel.poll();
  }
  Channel channel(volume, options);
  for (const uint64_t at : {0, 64 << 10, 448 << 10}) {
    const std::string error = run_one(channel, Direction::kRead, at, AlignedBuffer(64 << 10), 1);
    EXPECT_NE(error.find("read of a block that was not written"), std::string::npos) << error;
  }
}

TEST(Channel, EveryNameOfASectorThatCannotBeReadIsReadAgain) {
  const test::TemporaryDirectory directory;
  Volume volume({.directories = {directory.path()}, .bytes = kMi});
  const AlignedBuffer written(64 << 10, 1);
  const AlignedBuffer read(64 << 10);
  uint64_t rereads = 0;
  for (const int error_number : {EIO, ENODATA, EILSEQ, EREMOTEIO, ENXIO}) {
    const auto read_with = [&](uint64_t count) {
      ChannelOptions options = {.backend = Backend::kSimulated};
      options.simulated.faults = {{FaultKind::kEio, 1, count, error_number}};
      Channel channel(volume, options);
      if (!run_one(channel, Direction::kWrite, 0, written, 1).empty()) return std::string("wrote");
      const std::string error = run_one(channel, Direction::kRead, 0, read, 1);
      return error.empty() && !(read == written) ? "silently wrong" : error;
    };
    if (error_number == ENXIO) {
      EXPECT_NE(read_with(1).find("No such device or address"), std::string::npos);
      continue;
    }
    EXPECT_EQ(read_with(2), "") << error_number;
    EXPECT_EQ(volume.counters().rereads, rereads += 2) << error_number;
    const std::string error = read_with(3);
    EXPECT_NE(error.find(std::strerror(error_number)), std::string::npos) << error;
    EXPECT_NE(error.find("use another drive"), std::string::npos) << error;
    rereads += 2;
  }
}

TEST(Channel, NoFileHasMoreInFlightThanItsDepth) {
  const test::TemporaryDirectory a, b;
  for (const uint32_t file_depth : {0u, 1u, 2u, 3u}) {
    Volume volume({.directories = {a.path(), b.path()},
                   .weights = {3, 1},
                   .bytes = 4 * kMi,
                   .stripe_bytes = 64 << 10});
    const AlignedBuffer written(4 * kMi, 1);
    const AlignedBuffer read(4 * kMi);
    uint32_t most = 0;
    ChannelOptions options = {.backend = Backend::kSimulated,
                              .depth = 8,
                              .file_depth = file_depth,
                              .request_bytes = 64 << 10};
    options.simulated.most_of_a_file = &most;
    options.simulated.faults = {{FaultKind::kEio, 70, 2}};  // of reads, which are done again
    Channel channel(volume, options);
    EXPECT_EQ(run_one(channel, Direction::kWrite, 0, written, 1), "");
    EXPECT_EQ(run_one(channel, Direction::kRead, 0, read, 1), "");
    EXPECT_TRUE(read == written);
    EXPECT_GE(volume.counters().rereads, 2u);
    if (file_depth == 0) {
      EXPECT_GT(most, 4u) << "the drive with three of four stripes";
    } else {
      EXPECT_EQ(most, file_depth);
    }
  }
}

TEST(Channel, OptionsThatCannotWorkAreRefused) {
  const test::TemporaryDirectory directory;
  Volume volume({.directories = {directory.path()}, .bytes = kMi});
  EXPECT_THROW(Channel(volume, {.depth = 0}), Error);
  EXPECT_THROW(Channel(volume, {.request_bytes = 4096}), Error);
  EXPECT_THROW(Channel(volume, {.max_transfers = 0}), Error);
  EXPECT_THROW(Channel(volume, {.deadline_s = 0}), Error);
}

}  // namespace
}  // namespace strata::io
