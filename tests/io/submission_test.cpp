// SPDX-License-Identifier: Apache-2.0
// What the kernel is really given: registered memory, batches of which it takes only a part, and
// the halves of a mixed load. Skipped where io_uring is refused.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>

#include "io/ring.h"
#include "small_bench.h"
#include "submission_probe.h"

namespace strata::io {
namespace {

constexpr uint64_t kPiece = 64 << 10;

class Submissions : public testing::Test {
 protected:
  void SetUp() override {
    fd_ = open(directory_.path().c_str(), O_TMPFILE | O_RDWR, 0600);
    ASSERT_EQ(pwrite(fd_, content_.data(), content_.bytes(), 0),
              static_cast<ssize_t>(content_.bytes()));
    try {
      const Ring probe(options());
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  void TearDown() override { close(fd_); }

  RingOptions options() const {
    RingOptions options;
    options.backend = Backend::kUring;
    options.depth = 32;
    options.files = {{fd_, "the file"}};
    options.regions = {{memory_.data(), memory_.bytes()}};
    options.deadline_s = 20;
    return options;
  }

  // Reads the file in 32 parts at once, into memory from `to` on.
  static void read_all(Ring& ring, char* to) {
    std::array<RingRequest, 32> requests;
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].offset = i * kPiece;
      requests[i].data = to + i * kPiece;
      requests[i].bytes = kPiece;
      ring.submit(&requests[i]);
    }
    std::array<RingRequest*, 32> finished{};
    while (ring.in_flight() > 0) {
      if (ring.poll(finished) == 0) ring.wait(0.1);
    }
    for (const RingRequest& request : requests) {
      EXPECT_EQ(request.outcome, RingRequest::Outcome::kDone);
    }
  }

  const test::TemporaryDirectory directory_{"/dev/shm"};
  const AlignedBuffer content_{32 * kPiece, 1};
  const AlignedBuffer memory_{32 * kPiece};
  int fd_ = -1;
};

TEST_F(Submissions, WhatTheKernelDoesNotTakeAtOnceIsGivenAgain) {
  for (const unsigned most : {1, 3, 31}) {
    const SubmissionProbe probe(most);
    Ring ring(options());
    const AlignedBuffer read(32 * kPiece);
    read_all(ring, read.data());
    EXPECT_TRUE(read == content_) << most;
    EXPECT_EQ(probe.taken().size(), 32u) << most;
    EXPECT_GE(probe.partial_calls(), 1u) << most;
  }
}

TEST_F(Submissions, RegisteredMemoryIsUsed) {
  const SubmissionProbe probe;
  Ring ring(options());
  read_all(ring, memory_.data());
  const AlignedBuffer elsewhere(32 * kPiece);
  read_all(ring, elsewhere.data());
  EXPECT_TRUE(memory_ == content_ && elsewhere == content_);
  const std::vector<Submission> taken = probe.taken();
  ASSERT_EQ(taken.size(), 64u);
  for (size_t i = 0; i < taken.size(); ++i) {
    EXPECT_FALSE(taken[i].fixed_file) << i;  // see ring_uring.cpp
    EXPECT_EQ(taken[i].fixed_buffer, i < 32) << i;
  }
}

// What the kernel took is done, all else fails at once, and each comes back.
TEST_F(Submissions, WhenTheKernelRefusesForGoodEveryRequestComesBack) {
  constexpr unsigned kTaken = 5;  // of which one is the wake-up
  const SubmissionProbe probe(kTaken, 1);
  Ring ring(options());
  std::array<RingRequest, 32> requests;
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].offset = i * kPiece;
    requests[i].data = memory_.data() + i * kPiece;
    requests[i].bytes = kPiece;
    ring.submit(&requests[i]);
  }
  std::array<RingRequest*, 32> finished{};
  while (ring.in_flight() > 0) {
    if (ring.poll(finished) == 0) ring.wait(0.1);
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const bool done = requests[i].outcome == RingRequest::Outcome::kDone;
    EXPECT_EQ(done, i < probe.taken().size()) << i;
    EXPECT_EQ(requests[i].error_number, done ? 0 : EPERM) << i;
  }
  EXPECT_GE(probe.taken().size(), kTaken - 1);
}

// As at each border of two registered buffers of one arena.
TEST_F(Submissions, APieceAcrossTheEndOfARegionIsNotTakenForRegistered) {
  RingOptions half = options();
  half.regions = {{memory_.data(), memory_.bytes() / 2}};
  const SubmissionProbe probe;
  Ring ring(half);
  RingRequest request;
  request.data = memory_.data() + memory_.bytes() / 2 - kPiece / 2;
  request.bytes = kPiece;
  ring.submit(&request);
  std::array<RingRequest*, 1> finished{};
  while (ring.in_flight() > 0) {
    if (ring.poll(finished) == 0) ring.wait(0.1);
  }
  EXPECT_EQ(request.outcome, RingRequest::Outcome::kDone) << request.error_number;
  EXPECT_EQ(std::memcmp(request.data, content_.data(), kPiece), 0);
  ASSERT_EQ(probe.taken().size(), 1u);
  EXPECT_FALSE(probe.taken()[0].fixed_buffer);
}

class BenchSubmissions : public Submissions {
 protected:
  // What measurements give to the kernel, without the filling before them: one, or as many as it
  // takes until there are so many submissions.
  std::vector<std::vector<Submission>> measured(const BenchShape& shape, size_t least = 1) {
    BenchOptions options = small_bench(directory_);
    options.backend = Backend::kUring;
    IoBench bench(options);
    bench.measure(shape, 0.01, true);
    std::vector<std::vector<Submission>> measurements;
    for (size_t taken = 0; taken < least; taken += measurements.back().size()) {
      const SubmissionProbe probe;
      bench.measure(shape);
      measurements.push_back(probe.taken());
      if (measurements.back().empty()) break;
    }
    return measurements;
  }

  static void expect_halves_in_order(const std::vector<Submission>& taken);
};

void BenchSubmissions::expect_halves_in_order(const std::vector<Submission>& taken) {
  std::map<bool, uint64_t> last;
  std::map<bool, size_t> count;
  for (const Submission& one : taken) {
    EXPECT_TRUE(one.fixed_buffer && !one.fixed_file);
    EXPECT_EQ(one.bytes, kPiece);
    EXPECT_EQ(one.offset >= 32 * kMi, one.write) << one.offset;
    const auto before = last.find(one.write);
    const uint64_t begin = one.write ? 32 * kMi : 0;
    const bool first = before == last.end() || before->second + kPiece == begin + 32 * kMi;
    EXPECT_EQ(one.offset, first ? begin : before->second + kPiece) << "they go in order";
    last[one.write] = one.offset;
    ++count[one.write];
  }
  EXPECT_LE(std::max(count[false], count[true]) - std::min(count[false], count[true]), 1u);
}

TEST_F(BenchSubmissions, AMixedLoadReadsOneHalfAndWritesTheOtherByTurns) {
  const BenchShape shape = {.mode = BenchMode::kMixed, .block_bytes = kPiece, .depth = 8};
  for (const auto& taken : measured(shape, 1200)) {
    ASSERT_GE(taken.size(), shape.depth);
    expect_halves_in_order(taken);
  }
}

}  // namespace
}  // namespace strata::io
