// SPDX-License-Identifier: Apache-2.0
// The benchmark measures what it says: every mode moves bytes in the right directions, verified,
// within the limit on bytes written, at the rate of a limiter, and leaves nothing behind.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <thread>

#include "io/bench_checksums.h"
#include "io/bench_io.h"
#include "io/bench_statistics.h"
#include "io/drive_weights.h"
#include "small_bench.h"

namespace strata::io {
namespace {

TEST(IoBench, EachModeMovesItsDirections) {
  const test::TemporaryDirectory directory("/dev/shm");
  IoBench bench(small_bench(directory));
  for (const BenchMode mode : {BenchMode::kRead, BenchMode::kWrite, BenchMode::kMixed}) {
    const BenchResult result =
        bench.measure({.mode = mode, .block_bytes = 64 << 10, .depth = 8, .files = 2});
    SCOPED_TRACE(name_of(mode));
    EXPECT_EQ(result.bytes_read > 0, mode != BenchMode::kWrite);
    EXPECT_EQ(result.bytes_written > 0, mode != BenchMode::kRead);
    EXPECT_EQ(result.read.count, result.bytes_read >> 16);
    EXPECT_EQ(result.write.count, result.bytes_written >> 16);
    EXPECT_LE(result.read.p50_s, result.read.p99_s);
    EXPECT_LE(result.read.p999_s, result.read.max_s);
    EXPECT_GT(result.cpu_s, 0);
    EXPECT_GE(result.samples.size(), 1u);
    ASSERT_EQ(result.files.size(), 2u);
    EXPECT_NEAR(result.files[0].read_bytes_per_s + result.files[1].read_bytes_per_s,
                result.read_bytes_per_s(), result.read_bytes_per_s() * 1e-6);
    if (mode == BenchMode::kMixed) {
      const uint64_t least = std::min(result.bytes_read, result.bytes_written);
      EXPECT_LE(std::max(result.bytes_read, result.bytes_written) - least, 64u << 10);
    }
  }
}

double process_cpu_of(const std::function<void()>& work) {
  const double start_s = process_cpu_s();
  work();
  return process_cpu_s() - start_s;
}

// What a result says is checked against what is known from outside: the time that the process took,
// and the sums over samples and files. Returns whether most of the time, and of the bytes, is in
// it.
bool adds_up(IoBench& bench, const BenchShape& shape) {
  BenchResult result;
  const double cpu_s = process_cpu_of([&] { result = bench.measure(shape, 0.5, true); });
  EXPECT_LE(result.cpu_s, cpu_s + 1e-3);
  double read = 0, written = 0, last_s = 0;
  for (const BenchSample& sample : result.samples) {
    EXPECT_GT(sample.at_s, last_s);
    read += sample.read_bytes_per_s * (sample.at_s - last_s);
    written += sample.write_bytes_per_s * (sample.at_s - last_s);
    last_s = sample.at_s;
  }
  EXPECT_LE(last_s, result.seconds);
  const auto moved_read = static_cast<double>(result.bytes_read);
  const auto moved_written = static_cast<double>(result.bytes_written);
  EXPECT_LE(read, moved_read * 1.0001);
  EXPECT_LE(written, moved_written * 1.0001);
  double of_files_read = 0, of_files_written = 0;
  for (const BenchFile& file : result.files) {
    of_files_read += file.read_bytes_per_s * result.seconds;
    of_files_written += file.write_bytes_per_s * result.seconds;
  }
  EXPECT_NEAR(of_files_read, moved_read, 1e-6 * moved_read);
  EXPECT_NEAR(of_files_written, moved_written, 1e-6 * moved_written);
  return result.cpu_s >= 0.7 * cpu_s &&
         read + written >= 0.5 * last_s / result.seconds * (moved_read + moved_written);
}

TEST(IoBench, FiguresAddUp) {
  const test::TemporaryDirectory directory("/dev/shm");
  IoBench bench(small_bench(directory));
  for (const BenchMode mode : {BenchMode::kRead, BenchMode::kWrite, BenchMode::kMixed}) {
    SCOPED_TRACE(name_of(mode));
    const BenchShape shape = {.mode = mode, .block_bytes = 64 << 10, .depth = 8, .files = 2};
    bench.measure(shape, 0.01, true);
    bool most_counted = false;  // on a busy machine not each time
    for (int i = 0; i < 20 && !most_counted; ++i) most_counted = adds_up(bench, shape);
    EXPECT_TRUE(most_counted);
  }
}

TEST(IoBench, TheLimitOnBytesWrittenHolds) {
  const test::TemporaryDirectory directory("/dev/shm");
  BenchOptions options = small_bench(directory);
  options.seconds = 30;
  options.write_limit_bytes = 100 * kMi;
  IoBench bench(options);
  const BenchResult result =
      bench.measure({.mode = BenchMode::kWrite, .block_bytes = kMi, .depth = 4});
  EXPECT_TRUE(result.write_limit_reached);
  EXPECT_EQ(result.bytes_written, 36 * kMi);  // the rest filled the scratch
  EXPECT_EQ(bench.bytes_written(), 100 * kMi);
  options.write_limit_bytes = 32 * kMi;
  EXPECT_THROW(IoBench(options).measure({.mode = BenchMode::kRead, .depth = 4}), Error);
}

// A shape that writes and has nothing left is empty, so that the measurements before it are kept.
TEST(IoBench, NothingIsWrittenAfterTheLimit) {
  const test::TemporaryDirectory directory("/dev/shm");
  BenchOptions options = small_bench(directory);
  options.write_limit_bytes = 64 * kMi;  // the filling takes all of it
  IoBench bench(options);
  for (const BenchMode mode : {BenchMode::kWrite, BenchMode::kMixed}) {
    const BenchResult result = bench.measure({.mode = mode, .block_bytes = 64 << 10, .depth = 8});
    EXPECT_TRUE(result.empty()) << name_of(mode);
    EXPECT_TRUE(result.write_limit_reached) << name_of(mode);
    EXPECT_EQ(result.bytes_per_s() + result.cpu_s_per_gb(), 0) << name_of(mode);
  }
  EXPECT_FALSE(bench.measure({.mode = BenchMode::kRead, .depth = 4}).empty());
  EXPECT_EQ(bench.bytes_written(), 64 * kMi);
}

TEST(IoBench, WhatOthersWroteCountsAgainstTheLimit) {
  const test::TemporaryDirectory directory("/dev/shm");
  BenchOptions options = small_bench(directory);
  options.write_limit_bytes = 100 * kMi;
  IoBench bench(options);
  bench.charge(30 * kMi);
  const BenchResult result =
      bench.measure({.mode = BenchMode::kWrite, .block_bytes = kMi, .depth = 4});
  EXPECT_EQ(result.bytes_written, 6 * kMi);
  EXPECT_EQ(bench.write_allowance(), 0u);
}

// Writes without checksums leave blocks that cannot be verified: they are written anew before the
// next verified read, which would fail otherwise.
TEST(IoBench, ChecksumsCanBeTurnedOffAndOnBetweenMeasurements) {
  const test::TemporaryDirectory directory("/dev/shm");
  IoBench bench(small_bench(directory));
  for (const BenchMode off : {BenchMode::kRead, BenchMode::kWrite, BenchMode::kMixed}) {
    for (const BenchMode on : {BenchMode::kMixed, BenchMode::kRead}) {
      const BenchShape shape = {.mode = off, .block_bytes = 64 << 10, .depth = 8};
      EXPECT_FALSE(bench.measure(shape, 0.02, false).verified);
      const BenchShape next = {.mode = on, .block_bytes = 64 << 10, .depth = 8};
      EXPECT_TRUE(bench.measure(next, 0.02, true).verified) << name_of(off) << name_of(on);
    }
  }
}

TEST(IoBench, ASignalEndsItEarly) {
  const test::TemporaryDirectory directory("/dev/shm");
  BenchOptions options = small_bench(directory);
  options.seconds = 600;
  std::atomic<bool> stop{false};
  options.stop = &stop;
  for (const BenchMode mode : {BenchMode::kRead, BenchMode::kMixed}) {
    stop = false;
    IoBench bench(options);
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      stop = true;
    });
    const BenchResult result = bench.measure({.mode = mode, .block_bytes = 64 << 10, .depth = 8});
    later.join();
    EXPECT_LT(result.seconds, 60) << name_of(mode);
  }
}

// What waits for a rate limiter is dropped: at these rates it would take minutes.
TEST(IoBench, ASignalEndsALimitedDriveAtOnce) {
  const test::TemporaryDirectory directory("/dev/shm");
  BenchOptions options = small_bench(directory);
  options.bytes = 32 * kMi;
  options.seconds = 600;
  std::atomic<bool> stop{false};
  options.stop = &stop;
  for (const BenchMode mode : {BenchMode::kRead, BenchMode::kWrite, BenchMode::kMixed}) {
    for (const double write_rate : {1e6, 0.0}) {  // while it fills the scratch, and after
      SCOPED_TRACE(testing::Message() << name_of(mode) << " " << write_rate);
      stop = false;
      options.limits = {.read_bytes_per_s = 200e3, .write_bytes_per_s = write_rate};
      IoBench bench(options);
      std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        stop = true;
      });
      const auto start = std::chrono::steady_clock::now();
      const BenchResult result =
          bench.measure({.mode = mode, .block_bytes = 32 << 10, .depth = 64});
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      later.join();
      EXPECT_LT(seconds.count(), 10);
      EXPECT_TRUE(result.interrupted);
      EXPECT_FALSE(result.write_limit_reached);
      // What was dropped half way is written anew before it is read.
      stop = true;
      EXPECT_TRUE(bench.measure({.mode = mode, .block_bytes = 32 << 10, .depth = 64}).empty());
    }
  }
}

BenchResult with_rates(const std::vector<double>& rates) {
  BenchResult result;
  for (const double rate : rates) {
    result.samples.push_back({static_cast<double>(result.samples.size() + 1), 0, rate});
  }
  return result;
}

TEST(IoBench, AFullWriteCacheIsACliff) {
  std::vector<double> rates(40, 6e9);
  rates.resize(100, 1.5e9);  // the cache is full after 40 of 100 samples
  const Cliff cliff = find_cliff(with_rates(rates));
  EXPECT_TRUE(cliff.found);
  EXPECT_NEAR(cliff.best_bytes_per_s, 6e9, 1);
  EXPECT_NEAR(cliff.tail_bytes_per_s, 1.5e9, 1);
}

TEST(IoBench, ASteadyDriveHasNoCliff) {
  std::vector<double> rates;
  for (int i = 0; i < 100; ++i) rates.push_back(i % 2 == 0 ? 3e9 : 2.4e9);
  EXPECT_FALSE(find_cliff(with_rates(rates)).found);
  rates[97] = 1e8;  // one slow moment
  EXPECT_FALSE(find_cliff(with_rates(rates)).found);
  EXPECT_FALSE(find_cliff(with_rates({6e9, 1e9, 1e9})).found) << "too few to say";
}

TEST(IoBench, ChecksumsAreComparedInPairs) {
  const test::TemporaryDirectory directory("/dev/shm");
  IoBench bench(small_bench(directory));
  for (const BenchMode mode : {BenchMode::kRead, BenchMode::kWrite, BenchMode::kMixed}) {
    bool cost = false;  // on a busy machine it may drown in noise, but not each time
    for (int i = 0; i < 20 && !cost; ++i) {
      const ChecksumComparison result =
          compare_checksums(bench, {.mode = mode, .block_bytes = 256 << 10, .depth = 8}, 0.05, 5);
      EXPECT_EQ(result.ratio.count, 5u);
      EXPECT_LE(result.cost_cpu_s_per_gb.low, result.cost_cpu_s_per_gb.median);
      EXPECT_LE(result.cost_cpu_s_per_gb.median, result.cost_cpu_s_per_gb.high);
      cost = result.with_cpu_s_per_gb > result.without_cpu_s_per_gb;
    }
    EXPECT_TRUE(cost) << name_of(mode);
  }
  BenchOptions options = small_bench(directory);
  options.write_limit_bytes = 64 * kMi;
  IoBench poor(options);
  EXPECT_THROW(compare_checksums(poor, {.mode = BenchMode::kWrite, .depth = 4}, 0.05, 5), Error);
}

TEST(ChecksumRounds, CostsAreDifferencesOfPairsAndTheControlIsWithoutAgainstWithout) {
  const ChecksumComparison comparison = comparison_of(
      {.mode = BenchMode::kRead},
      {{.with = 1e9, .without = 2e9, .without_again = 1e9, .with_cpu = 0.3, .without_cpu = 0.1},
       {.with = 3e9, .without = 4e9, .without_again = 4e9, .with_cpu = 0.9, .without_cpu = 0.2},
       {.with = 5e9, .without = 5e9, .without_again = 4e9, .with_cpu = 0.5, .without_cpu = 0.4}});
  EXPECT_EQ(comparison.shape.mode, BenchMode::kRead);
  EXPECT_DOUBLE_EQ(comparison.with_bytes_per_s, 3e9);
  EXPECT_DOUBLE_EQ(comparison.without_bytes_per_s, 4e9);
  EXPECT_DOUBLE_EQ(comparison.with_cpu_s_per_gb, 0.5);
  EXPECT_DOUBLE_EQ(comparison.without_cpu_s_per_gb, 0.2);
  EXPECT_NEAR(comparison.cost_cpu_s_per_gb.median, 0.2, 1e-12);
  EXPECT_DOUBLE_EQ(comparison.ratio.median, 0.75);
  EXPECT_DOUBLE_EQ(comparison.control.median, 0.8);
}

TEST(DriveWeights, DrivesThatDifferGetStripesByTheirSpeed) {
  EXPECT_EQ(weights_of({}), std::vector<double>{});
  EXPECT_EQ(weights_of({3e9}), std::vector<double>{});
  EXPECT_EQ(weights_of({3e9, 2.9e9, 2.5e9}), std::vector<double>{});
  EXPECT_EQ(weights_of({3e9, 0}), std::vector<double>{});
  const std::vector<double> weights = weights_of({6e9, 2e9});
  ASSERT_EQ(weights.size(), 2u);
  EXPECT_DOUBLE_EQ(weights[0], 0.75);
  EXPECT_DOUBLE_EQ(weights[1], 0.25);
}

TEST(DriveWeights, DirectoriesOfOneDriveAreAlikeAndOthersAreMeasured) {
  const test::TemporaryDirectory a, b, memory("/dev/shm");
  EXPECT_TRUE(measure_weights({.directories = {a.path(), b.path()}}).weights.empty());
  EXPECT_TRUE(measure_weights({.directories = {a.path()}}).weights.empty());
  const DriveWeights measured = measure_weights(
      {.directories = {a.path(), memory.path()}, .seconds = 0.1, .allow_memory_filesystem = true});
  EXPECT_GT(measured.bytes_written, 128 * kMi) << "both are filled, then measured";
  EXPECT_LE(measured.bytes_written, 2 * kWeightWriteBytes);
  const std::vector<double>& weights = measured.weights;
  if (!weights.empty()) {  // memory may be as slow as a drive here
    ASSERT_EQ(weights.size(), 2u);
    EXPECT_NEAR(weights[0] + weights[1], 1, 1e-9);
  }
  for (const test::TemporaryDirectory* directory : {&a, &b, &memory}) {
    EXPECT_TRUE(std::filesystem::is_empty(directory->path()));
  }
  EXPECT_THROW(measure_weights({.directories = {a.path(), "/proc"}}), Error);
}

TEST(IoBench, ALimitedDriveIsMeasuredAtItsRate) {
  const test::TemporaryDirectory directory("/dev/shm");
  BenchOptions options = small_bench(directory);
  options.seconds = 0.5;
  options.limits.read_bytes_per_s = 100e6;
  IoBench bench(options);
  double best = 0;  // a busy machine may be late, but not each time
  for (int i = 0; i < 20 && best <= 55e6; ++i) {
    const BenchResult result =
        bench.measure({.mode = BenchMode::kRead, .block_bytes = 64 << 10, .depth = 8});
    EXPECT_LT(result.read_bytes_per_s(), 105e6);
    best = std::max(best, result.read_bytes_per_s());
  }
  EXPECT_GT(best, 55e6);
}

TEST(IoBench, LeavesNothing) {
  const test::TemporaryDirectory directory;
  BenchOptions options = small_bench(directory);
  { IoBench(options).measure({.mode = BenchMode::kRead, .block_bytes = kMi, .depth = 4}); }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(IoBench, ShapesThatCannotWorkAreRefused) {
  const test::TemporaryDirectory directory("/dev/shm");
  IoBench bench(small_bench(directory));
  EXPECT_THROW(bench.measure({.block_bytes = 5000}), Error);
  EXPECT_THROW(bench.measure({.block_bytes = 1024}), Error);
  EXPECT_THROW(bench.measure({.block_bytes = 64 * kMi}), Error);
  EXPECT_THROW(bench.measure({.depth = 0}), Error);
  EXPECT_THROW(bench.measure({.files = 0}), Error);
  EXPECT_THROW(bench.measure({.files = 65}), Error);
}

TEST(RatioStatistics, MedianAndIntervalOfKnownRatios) {
  std::vector<double> ratios;
  for (int i = 0; i < 21; ++i) ratios.push_back(0.90 + 0.01 * i);
  const Interval interval = bootstrap_median(ratios);
  EXPECT_NEAR(interval.median, 1.0, 1e-12);
  EXPECT_GT(interval.low, 0.93);
  EXPECT_LT(interval.low, 1.0);
  EXPECT_GT(interval.high, 1.0);
  EXPECT_LT(interval.high, 1.07);
  const Interval same = bootstrap_median(std::vector<double>(21, 0.5));
  EXPECT_EQ(same.low, 0.5);
  EXPECT_EQ(same.high, 0.5);
}

}  // namespace
}  // namespace strata::io
