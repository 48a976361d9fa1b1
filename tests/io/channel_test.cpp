// SPDX-License-Identifier: Apache-2.0
// Every backend moves the same bytes: what is written under a tag is read back, across stripes,
// request sizes, depths and files; what is read under another tag, or was never written, is an
// error.
#include "io/channel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "scratch_dir.h"

namespace strata::io {
namespace {

constexpr uint64_t kMi = 1 << 20;

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
  const ScratchDir a, b, c;
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
  const ScratchDir directory;
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
  const ScratchDir directory;
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
  const ScratchDir directory;
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
  const ScratchDir directory;
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
  const ScratchDir directory;
  Volume volume({.directories = {directory.path()}, .bytes = kMi});
  Channel channel(volume, options());
  const std::string error = run_one(channel, Direction::kRead, 65536, AlignedBuffer(65536), 0);
  EXPECT_NE(error.find("read of a block that was not written"), std::string::npos) << error;
}

TEST_P(ChannelTest, AShorterReadOfAPartialBlockIsAnError) {
  const ScratchDir directory;
  Volume volume({.directories = {directory.path()}, .bytes = kMi});
  Channel channel(volume, options());
  EXPECT_EQ(run_one(channel, Direction::kWrite, 0, AlignedBuffer(65536 + 8192, 5), 9), "");
  EXPECT_EQ(run_one(channel, Direction::kRead, 0, AlignedBuffer(65536), 9), "");
  EXPECT_EQ(run_one(channel, Direction::kRead, 65536, AlignedBuffer(8192), 9), "");
  EXPECT_NE(run_one(channel, Direction::kRead, 65536, AlignedBuffer(4096), 9), "");
}

TEST_P(ChannelTest, TwoChannelsOnTwoThreadsShareAVolume) {
  const ScratchDir a, b;
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
  const ScratchDir directory;
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
  channel.wake();  // before the wait: not lost
  const double again_s = channel.now_s();
  channel.wait(kLong_s);
  EXPECT_LT(channel.now_s() - again_s, kLong_s / 2);
}

// Of a transfer that fails, the bytes that nobody compared are counted apart: the volume, which
// checks the sum when it goes, would end the program over them otherwise.
TEST_P(ChannelTest, EveryByteThatArrivesIsVerifiedRejectedOrAbandoned) {
  const ScratchDir directory;
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
    const ScratchDir directory;
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
  const ScratchDir directory;
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
  const ScratchDir directory(ScratchDir::kMemory);
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

TEST(Channel, OptionsThatCannotWorkAreRefused) {
  const ScratchDir directory;
  Volume volume({.directories = {directory.path()}, .bytes = kMi});
  EXPECT_THROW(Channel(volume, {.depth = 0}), Error);
  EXPECT_THROW(Channel(volume, {.request_bytes = 4096}), Error);
  EXPECT_THROW(Channel(volume, {.max_transfers = 0}), Error);
  EXPECT_THROW(Channel(volume, {.deadline_s = 0}), Error);
}

}  // namespace
}  // namespace strata::io
