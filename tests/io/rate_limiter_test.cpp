// SPDX-License-Identifier: Apache-2.0
// The limiter reaches its rate within 1 % and does not exceed it, alone, shared and half duplex;
// latency percentiles are right within a bucket.
#include "io/rate_limiter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <thread>

#include "aligned_buffer.h"
#include "engine/base/clock.h"
#include "io/bench_io.h"
#include "io/latency.h"

namespace strata::io {
namespace {

TEST(RateLimiter, ABusyLaneGetsTheRateExactly) {
  RateLimiter limiter({.read_bytes_per_s = 100e6});
  double now_s = 10;
  const double begin_s = now_s;
  for (int i = 0; i < 1000; ++i)
    now_s = std::max(now_s, limiter.book(Direction::kRead, kMi, now_s));
  EXPECT_NEAR(1000 * kMi / (now_s - begin_s), 100e6, 1e6);
}

TEST(RateLimiter, LateWakeUpsAreMadeUpFor) {
  RateLimiter limiter({.write_bytes_per_s = 1e9});
  double now_s = 0;
  for (int i = 0; i < 10000; ++i) {
    const double start_s = limiter.book(Direction::kWrite, kMi, now_s);
    if (start_s > now_s) now_s = start_s + 1e-3;  // each sleep ends a millisecond late
  }
  EXPECT_NEAR(10000 * kMi / now_s, 1e9, 1e7);
}

TEST(RateLimiter, IdleTimeIsNotSavedUp) {
  RateLimiter limiter({.read_bytes_per_s = 100e6});
  EXPECT_LE(limiter.book(Direction::kRead, kMi, 1000), 1000);
  double start_s = 1000;
  for (int i = 0; i < 100; ++i) start_s = limiter.book(Direction::kRead, kMi, 1000);
  EXPECT_NEAR(start_s, 1000 - 0.005 + 100 * kMi / 100e6, 1e-6);
}

TEST(RateLimiter, DirectionsAreIndependentUnlessHalfDuplex) {
  RateLimiter both({.read_bytes_per_s = 1e6, .write_bytes_per_s = 2e6});
  EXPECT_LE(both.book(Direction::kRead, 1000000, 0), 0);
  EXPECT_LE(both.book(Direction::kWrite, 1000000, 0), 0);
  RateLimiter one({.read_bytes_per_s = 1e6, .write_bytes_per_s = 2e6, .half_duplex = true});
  EXPECT_NEAR(one.book(Direction::kRead, 1000000, 0), 0, 0.006);
  EXPECT_NEAR(one.book(Direction::kWrite, 1000000, 0), 1, 0.006);
  EXPECT_NEAR(one.book(Direction::kRead, 1000000, 0), 1.5, 0.006);
  EXPECT_EQ(one.describe(), "read 0.001 GB/s, write 0.002 GB/s, half duplex");
}

TEST(RateLimiter, NoLimitNeverWaits) {
  RateLimiter limiter({});
  EXPECT_FALSE(limiter.limits(Direction::kRead));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(limiter.book(Direction::kRead, kMi, 5), 5);
  EXPECT_EQ(limiter.describe(), "");
}

TEST(RateLimiter, WhatIsNoRateIsRefused) {
  EXPECT_THROW(RateLimiter({.read_bytes_per_s = -1}), Error);
  EXPECT_THROW(RateLimiter({.write_bytes_per_s = std::nan("")}), Error);
}

// Two lanes of real channels on a real clock, in memory: together they move what the limit says. A
// busy machine may be late, but not each time.
TEST(RateLimiter, ChannelsShareIt) {
  constexpr int kTries = 20;
  constexpr double kRate = 40e6;
  const test::TemporaryDirectory directory("/dev/shm");
  Volume volume(
      {.directories = {directory.path()}, .bytes = 16 * kMi, .allow_memory_filesystem = true});
  const AlignedBuffer read(8 * kMi);
  const AlignedBuffer written(8 * kMi);
  double best = 0;
  for (int i = 0; i < kTries && best < 0.55 * kRate; ++i) {
    RateLimiter limiter({.read_bytes_per_s = kRate,
                         .write_bytes_per_s = kRate,
                         .half_duplex = true,
                         .burst_s = 0.02});
    const auto lane = [&](uint64_t address, Direction direction, const AlignedBuffer& buffer) {
      Channel channel(
          volume, {.depth = 4, .request_bytes = 512 << 10, .limiter = &limiter, .verify = false});
      EXPECT_EQ(run_one(channel, direction, address, buffer, 1), "");
    };
    const double start_s = now_s();
    std::thread other(lane, 0, Direction::kWrite, std::cref(written));
    lane(8 * kMi, Direction::kRead, read);
    other.join();
    const double rate = 16.0 * kMi / (now_s() - start_s);
    EXPECT_LE(rate, kRate * 1.10);  // the burst, and the last request, which ends before its time
    best = std::max(best, rate);
  }
  EXPECT_GE(best, 0.55 * kRate);
}

TEST(LatencyHistogram, PercentilesAreWithinABucket) {
  LatencyHistogram histogram;
  for (int i = 1; i <= 10000; ++i) histogram.add(i * 1e-5);
  EXPECT_EQ(histogram.count(), 10000u);
  EXPECT_NEAR(histogram.percentile_s(0.5), 0.05, 0.05 * 0.07);
  EXPECT_NEAR(histogram.percentile_s(0.99), 0.099, 0.099 * 0.07);
  EXPECT_DOUBLE_EQ(histogram.max_s(), 0.1);
  EXPECT_DOUBLE_EQ(histogram.percentile_s(1.0), 0.1);
}

TEST(LatencyHistogram, ASummaryHasEachOfItsFigures) {
  LatencyHistogram histogram;
  for (int i = 1; i <= 10000; ++i) histogram.add(i * 1e-5);
  const LatencySummary summary = summarize(histogram);
  EXPECT_EQ(summary.count, 10000u);
  EXPECT_NEAR(summary.p50_s, 0.05, 0.05 * 0.07);
  EXPECT_NEAR(summary.p99_s, 0.099, 0.099 * 0.07);
  EXPECT_NEAR(summary.p999_s, 0.0999, 0.0999 * 0.07);
  EXPECT_LT(summary.p50_s, summary.p99_s);
  EXPECT_LE(summary.p99_s, summary.p999_s);
  EXPECT_DOUBLE_EQ(summary.max_s, 0.1);
}

TEST(LatencyHistogram, ExtremesStayInside) {
  LatencyHistogram histogram;
  histogram.add(0);
  histogram.add(1e9);
  EXPECT_EQ(histogram.percentile_s(0.5), 1e-6 * (1 + 1.0 / 16));
  EXPECT_EQ(histogram.max_s(), 1e9);
  EXPECT_EQ(LatencyHistogram().percentile_s(0.99), 0);
}

}  // namespace
}  // namespace strata::io
