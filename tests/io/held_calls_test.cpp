// SPDX-License-Identifier: Apache-2.0
// The pool of threads on a drive that hangs: what no thread has begun is cancelled, what one has
// keeps its memory, nothing goes on after its deadline; and a lock whose file goes while it is
// taken.
#include "held_calls.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "aligned_buffer.h"
#include "io/ring.h"
#include "io/scratch_file.h"

namespace strata::io {
namespace {

constexpr uint64_t kBlock = 64 << 10;

class HeldRing : public testing::Test {
 protected:
  static constexpr uint32_t kDepth = 40;  // of which the pool has a thread for 32

  void SetUp() override {
    fd_ = open(directory_.path().c_str(), O_TMPFILE | O_RDWR, 0600);
    ASSERT_EQ(pwrite(fd_, content_.data(), content_.bytes(), 0),
              static_cast<ssize_t>(content_.bytes()));
    for (uint32_t i = 0; i < kDepth; ++i) {
      requests_[i].offset = i * kBlock;
      requests_[i].data = memory_.data() + i * kBlock;
      requests_[i].bytes = kBlock;
    }
  }
  void TearDown() override { close(fd_); }

  RingOptions options(double deadline_s) const {
    RingOptions options;
    options.backend = Backend::kThreads;
    options.depth = kDepth;
    options.files = {{fd_, "the file"}};
    options.deadline_s = deadline_s;
    return options;
  }

  template <class Holds>
  static bool poll_until(Ring& ring, Holds holds) {
    const double end_s = ring.now_s() + 60;
    std::array<RingRequest*, kDepth> finished{};
    while (!holds() && ring.now_s() < end_s) {
      if (ring.poll(finished) == 0) ring.wait(0.02);
    }
    return holds();
  }

  const test::TemporaryDirectory directory_{"/dev/shm"};
  const AlignedBuffer content_{kDepth * kBlock, 1};
  const AlignedBuffer memory_{kDepth * kBlock};
  std::array<RingRequest, kDepth> requests_;
  int fd_ = -1;
};

TEST_F(HeldRing, WhatNoThreadHasBegunIsCancelledAndItsMemoryIsFree) {
  HeldCalls held(fd_);
  Ring ring(options(0.4));
  for (RingRequest& request : requests_) ring.submit(&request);
  ASSERT_TRUE(poll_until(ring, [&] { return ring.in_flight() == 0; }));
  const auto in_use = static_cast<uint64_t>(
      std::count_if(requests_.begin(), requests_.end(),
                    [](const RingRequest& request) { return request.memory_in_use; }));
  EXPECT_EQ(in_use, held.begun());
  EXPECT_EQ(in_use, ring.lost());
  EXPECT_LE(in_use, 32u);
  for (const RingRequest& request : requests_) {
    EXPECT_EQ(request.outcome, RingRequest::Outcome::kDeadline);
  }
  held.release();
  ASSERT_TRUE(poll_until(ring, [&] { return ring.lost() == 0; })) << "they come back at last";
  EXPECT_EQ(held.begun(), in_use) << "a cancelled one is not begun any more";
}

// Its thread comes back with a part between the cancellation and the end of the grace after it.
TEST_F(HeldRing, APartThatComesAfterTheDeadlineIsNotContinued) {
  HeldCalls held(fd_);
  Ring ring(options(1));
  RingRequest& request = requests_[0];
  ring.submit(&request);
  const double release_s = ring.now_s() + 1.6;
  poll_until(ring, [&] { return ring.now_s() >= release_s; });
  held.release(kBlock / 2);
  ASSERT_TRUE(poll_until(ring, [&] { return ring.in_flight() == 0 && ring.lost() == 0; }));
  EXPECT_EQ(request.outcome, RingRequest::Outcome::kDeadline);
  EXPECT_EQ(held.begun(), 1u);
}

// A read holds each slot of the ring, and a write waits and never starts.
TEST(HeldChannel, AWriteThatNeverStartsIsForgotten) {
  const test::TemporaryDirectory directory{"/dev/shm"};
  Volume volume(
      {.directories = {directory.path()}, .bytes = 16 * kBlock, .allow_memory_filesystem = true});
  ChannelOptions options = {.backend = Backend::kThreads, .depth = 2, .request_bytes = kBlock};
  const AlignedBuffer older(2 * kBlock, 1), newer(2 * kBlock, 2);
  const AlignedBuffer held_read(2 * kBlock), next_read(2 * kBlock);
  {
    Channel channel(volume, options);
    ASSERT_EQ(run_one(channel, Direction::kWrite, 0, older, 1), "");
    ASSERT_EQ(run_one(channel, Direction::kWrite, 4 * kBlock, older, 1), "");
  }
  options.deadline_s = 0.4;
  Channel channel(volume, options);
  HeldCalls held(volume.files()[0].fd);
  Transfer stuck = transfer_of(Direction::kRead, 0, held_read, 1);
  Transfer waiting = transfer_of(Direction::kWrite, 4 * kBlock, newer, 2);
  channel.submit(&stuck);
  channel.submit(&waiting);
  ASSERT_TRUE(drain(channel));
  ASSERT_TRUE(stuck.error != nullptr && waiting.error != nullptr);
  EXPECT_NE(std::string(stuck.error->what()).find("the kernel still owns the memory"),
            std::string::npos)
      << stuck.error->what();
  EXPECT_NE(std::string(waiting.error->what()).find("every request of this channel hangs"),
            std::string::npos)
      << waiting.error->what();
  held.release();
  options.deadline_s = 60;
  Channel next(volume, options);
  const std::string error = run_one(next, Direction::kRead, 4 * kBlock, next_read, 2);
  EXPECT_NE(error.find("the write that was to replace it failed"), std::string::npos) << error;
}

// Between our open and our lock the holder removes its file, and somebody may make another one:
// what we hold then is not what others find.
TEST(HeldLock, ALockWhoseFileWentIsTakenAnew) {
  for (const bool another : {false, true}) {
    const test::TemporaryDirectory directory;
    const std::string name = directory.path() + "/strata.lock";
    before_next_flock([&] {
      ASSERT_TRUE(std::filesystem::remove(name));
      if (another) std::ofstream{name};
    });
    const DirectoryLock lock(directory.path(), "strata.lock", "the first");
    EXPECT_TRUE(std::filesystem::exists(name));
    EXPECT_THROW(DirectoryLock(directory.path(), "strata.lock", "a second"), Error) << another;
  }
}

}  // namespace
}  // namespace strata::io
