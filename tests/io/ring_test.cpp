// SPDX-License-Identifier: Apache-2.0
// The rules of Ring, on a simulated drive: what each result code leads to, how often a request is
// tried again, deadlines, and that requests come back exactly once.
#include "io/ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <set>

#include "aligned_buffer.h"

namespace strata::io {
namespace {

constexpr uint64_t kBytes = 65536;

class RingTest : public testing::Test {
 protected:
  RingTest() {
    fd_ = open(directory_.path().c_str(), O_TMPFILE | O_RDWR, 0600);
    if (pwrite(fd_, content_.data(), kBytes, 0) != static_cast<ssize_t>(kBytes)) std::abort();
  }
  ~RingTest() override { close(fd_); }

  RingOptions options(std::vector<SimulatedFault> faults) {
    RingOptions options;
    options.backend = Backend::kSimulated;
    options.depth = 4;
    options.files = {{fd_, "the file"}};
    options.simulated.faults = std::move(faults);
    options.simulated.injected = &injected_;
    return options;
  }

  // One read of the whole file under those faults.
  RingRequest read(std::vector<SimulatedFault> faults, double deadline_s = 600) {
    RingOptions with = options(std::move(faults));
    with.deadline_s = deadline_s;
    Ring ring(with);
    RingRequest request;
    request.data = memory_.data();
    request.bytes = kBytes;
    ring.submit(&request);
    EXPECT_EQ(collect(ring, 1), 1u);
    EXPECT_EQ(ring.in_flight(), 0u);
    return request;
  }

  static size_t collect(Ring& ring, size_t wanted) {
    std::array<RingRequest*, 4> finished{};
    std::set<RingRequest*> seen;
    for (int tries = 0; tries < 100000 && seen.size() < wanted; ++tries) {
      const size_t count = ring.poll(finished);
      for (size_t i = 0; i < count; ++i) EXPECT_TRUE(seen.insert(finished[i]).second);
      if (count == 0) ring.wait(1);
    }
    return seen.size();
  }

  const test::TemporaryDirectory directory_{"/dev/shm"};
  const AlignedBuffer content_{kBytes, 1};
  const AlignedBuffer memory_{kBytes, 2};
  int fd_ = -1;
  uint64_t injected_ = 0;
};

using Outcome = RingRequest::Outcome;

TEST_F(RingTest, ShortTransfersAreContinued) {
  const RingRequest request = read({{FaultKind::kShort, 0, 3}});
  EXPECT_EQ(request.outcome, Outcome::kDone);
  EXPECT_TRUE(memory_ == content_);
  EXPECT_EQ(injected_, 3u);
}

TEST_F(RingTest, ARingThatHasEndedHoldsNoFile) {
  const std::string path = directory_.path() + "/locked";
  const auto locked = [&] {  // a lock ends with what holds its file
    const int fd = open(path.c_str(), O_CREAT | O_RDWR, 0600);
    int tries = 0;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0 && ++tries < 200) usleep(10'000);
    EXPECT_LT(tries, 200);
    return fd;
  };
  for (const Backend backend :
       {Backend::kThreads, Backend::kAuto}) {  // io_uring, if it may be used
    const int fd = locked();
    ASSERT_EQ(pwrite(fd, content_.data(), kBytes, 0), static_cast<ssize_t>(kBytes));
    RingOptions with = options({});
    with.backend = backend;
    with.files = {{fd, "the file"}};
    {
      Ring ring(with);
      RingRequest request;
      request.data = memory_.data();
      request.bytes = kBytes;
      ring.submit(&request);
      EXPECT_EQ(collect(ring, 1), 1u);
      EXPECT_EQ(request.outcome, Outcome::kDone);
    }
    close(fd);
    close(locked());
  }
}

TEST_F(RingTest, EagainAndEintrAreTriedAgain) {
  for (const FaultKind kind : {FaultKind::kEagain, FaultKind::kEintr}) {
    EXPECT_EQ(read({{kind, 0, 100}}).outcome, Outcome::kDone);
    EXPECT_TRUE(memory_ == content_);
  }
}

TEST_F(RingTest, EagainForeverIsAnError) {
  const RingRequest request = read({{FaultKind::kEagain, 0, 1000000}});
  EXPECT_EQ(request.outcome, Outcome::kErrno);
  EXPECT_EQ(request.error_number, EAGAIN);
}

TEST_F(RingTest, NoProgressOnceIsTriedAgainTwiceIsAnError) {
  EXPECT_EQ(read({{FaultKind::kZero, 0, 1}}).outcome, Outcome::kDone);
  EXPECT_EQ(read({{FaultKind::kZero, 0, 2}}).outcome, Outcome::kNoProgress);
  // Progress in between starts the count again.
  EXPECT_EQ(read({{FaultKind::kZero, 0}, {FaultKind::kShort, 1}, {FaultKind::kZero, 2}}).outcome,
            Outcome::kDone);
}

TEST_F(RingTest, ReadPastTheEndIsNoProgress) {
  Ring ring(options({}));
  RingRequest request;
  request.offset = kBytes / 2;
  request.data = memory_.data();
  request.bytes = kBytes;
  ring.submit(&request);
  ASSERT_EQ(collect(ring, 1), 1u);
  EXPECT_EQ(request.outcome, Outcome::kNoProgress);
  EXPECT_EQ(request.bytes_moved, kBytes / 2);
}

TEST_F(RingTest, ErrnoComesBack) {
  const RingRequest request = read({{FaultKind::kEio, 0}});
  EXPECT_EQ(request.outcome, Outcome::kErrno);
  EXPECT_EQ(request.error_number, EIO);
  EXPECT_EQ(read({{FaultKind::kShort, 0}, {FaultKind::kEnospc, 1}}).error_number, ENOSPC);
}

TEST_F(RingTest, AHangEndsAtTheDeadlineAndTheMemoryIsFree) {
  const RingRequest request = read({{FaultKind::kHang, 0}}, 5);
  EXPECT_EQ(request.outcome, Outcome::kDeadline);
  EXPECT_FALSE(request.memory_in_use);
  EXPECT_GE(request.finished_s - request.started_s, 5);
  EXPECT_LE(request.finished_s - request.started_s, 7);
}

TEST_F(RingTest, RequestsOvertakeEachOtherAndComeBackOnce) {
  Ring ring(options({}));
  std::vector<AlignedBuffer> buffers;
  std::array<RingRequest, 64> requests;
  size_t back = 0;
  bool overtaken = false;
  for (size_t i = 0; i < requests.size();) {
    std::array<RingRequest*, 4> finished{};
    while (ring.has_room() && i < requests.size()) {
      buffers.emplace_back(4096);
      requests[i].offset = i % 16 * 4096;
      requests[i].data = buffers.back().data();
      requests[i].bytes = 4096;
      ring.submit(&requests[i++]);
    }
    const size_t count = ring.poll(finished);
    for (size_t k = 0; k < count; ++k, ++back) overtaken |= finished[k] != &requests[back];
    if (count == 0) ring.wait(1);
  }
  back += collect(ring, ring.in_flight());
  EXPECT_EQ(back, requests.size());
  EXPECT_TRUE(overtaken);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(std::memcmp(buffers[i].data(), content_.data() + i % 16 * 4096, 4096), 0) << i;
  }
}

TEST_F(RingTest, DestructionCancelsWhatHangs) {
  RingRequest request;
  request.data = memory_.data();
  request.bytes = kBytes;
  Ring ring(options({{FaultKind::kHang, 0}}));
  ring.submit(&request);
}

TEST_F(RingTest, OneSeedIsOneHistory) {
  const auto finish_times = [this](uint64_t seed) {
    RingOptions with = options({});
    with.simulated.seed = seed;
    Ring ring(with);
    std::array<RingRequest, 4> requests;
    for (RingRequest& request : requests) {
      request.data = memory_.data();
      request.bytes = 4096;
      ring.submit(&request);
    }
    collect(ring, 4);
    return std::array{requests[0].finished_s, requests[1].finished_s, requests[2].finished_s,
                      requests[3].finished_s};
  };
  EXPECT_EQ(finish_times(1), finish_times(1));
  EXPECT_NE(finish_times(1), finish_times(2));
}

}  // namespace
}  // namespace strata::io
