// SPDX-License-Identifier: Apache-2.0
// The benchmark measures what it says: every mode moves bytes in the right directions, verified,
// within the limit on bytes written, at the rate of a limiter, and leaves nothing behind.
#include <gtest/gtest.h>

#include "io/bench_fio.h"
#include "io/bench_io.h"
#include "scratch_dir.h"

namespace strata::io {
namespace {

constexpr uint64_t kMi = 1 << 20;

BenchOptions small(const ScratchDir& directory) {
  BenchOptions options;
  options.directories = {directory.path()};
  options.bytes = 64 * kMi;
  options.seconds = 0.1;
  options.sample_s = 0.02;
  options.allow_memory_filesystem = true;
  return options;
}

TEST(IoBench, EachModeMovesItsDirections) {
  const ScratchDir directory(ScratchDir::kMemory);
  IoBench bench(small(directory));
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
      EXPECT_NEAR(
          static_cast<double>(result.bytes_read) / static_cast<double>(result.bytes_written), 1,
          0.1);
    }
  }
}

TEST(IoBench, ATrainingStepReadsWeightsTwiceAndStateOnce) {
  const ScratchDir directory(ScratchDir::kMemory);
  IoBench bench(small(directory));
  const BenchResult result = bench.measure(
      {.mode = BenchMode::kTraining, .block_bytes = 64 << 10, .depth = 8, .files = 1});
  EXPECT_GE(result.steps, 1u);
  // 16 layers of 2 + 12 units of 256 KiB: 2 + 2 + 12 units read and 12 written in each.
  EXPECT_EQ(result.bytes_read, result.steps * 16 * 16 * (256ull << 10));
  EXPECT_EQ(result.bytes_written, result.steps * 16 * 12 * (256ull << 10));
  EXPECT_GT(result.optimizer_s, 0);
}

TEST(IoBench, TheLimitOnBytesWrittenHolds) {
  const ScratchDir directory(ScratchDir::kMemory);
  BenchOptions options = small(directory);
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

TEST(IoBench, ALimitedDriveIsMeasuredAtItsRate) {
  const ScratchDir directory(ScratchDir::kMemory);
  BenchOptions options = small(directory);
  options.seconds = 0.5;
  options.limits.read_bytes_per_s = 100e6;
  IoBench bench(options);
  const BenchResult result =
      bench.measure({.mode = BenchMode::kRead, .block_bytes = 64 << 10, .depth = 8});
  EXPECT_GT(result.read_bytes_per_s(), 80e6);
  EXPECT_LT(result.read_bytes_per_s(), 105e6);
}

TEST(IoBench, LeavesNothing) {
  const ScratchDir directory;
  BenchOptions options = small(directory);
  { IoBench(options).measure({.mode = BenchMode::kRead, .block_bytes = kMi, .depth = 4}); }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(IoBench, ShapesThatCannotWorkAreRefused) {
  const ScratchDir directory(ScratchDir::kMemory);
  IoBench bench(small(directory));
  EXPECT_THROW(bench.measure({.block_bytes = 5000}), Error);
  EXPECT_THROW(bench.measure({.block_bytes = 1024}), Error);
  EXPECT_THROW(bench.measure({.block_bytes = 64 * kMi}), Error);
  EXPECT_THROW(bench.measure({.depth = 0}), Error);
  EXPECT_THROW(bench.measure({.files = 0}), Error);
  EXPECT_THROW(bench.measure({.mode = BenchMode::kTraining, .block_bytes = 4 * kMi, .depth = 2}),
               Error);
}

TEST(RatioStatistics, MedianAndIntervalOfKnownRatios) {
  std::vector<double> ratios;
  for (int i = 0; i < 21; ++i) ratios.push_back(0.90 + 0.01 * i);
  const RatioInterval interval = bootstrap_ratio(ratios);
  EXPECT_NEAR(interval.median, 1.0, 1e-12);
  EXPECT_GT(interval.low, 0.93);
  EXPECT_LT(interval.low, 1.0);
  EXPECT_GT(interval.high, 1.0);
  EXPECT_LT(interval.high, 1.07);
  const RatioInterval same = bootstrap_ratio(std::vector<double>(21, 0.5));
  EXPECT_EQ(same.low, 0.5);
  EXPECT_EQ(same.high, 0.5);
}

TEST(Fio, ItsTerseLineIsUnderstood) {
  // fio 3.33, --output-format=terse --terse-version=3, cut after the processor fields.
  std::string line = "3;fio-3.33;t;0;0;2097152;1048576;1024;2000";
  for (int field = 10; field <= 46; ++field) line += ";0";
  line += ";1048576;524288;512;2000";
  for (int field = 51; field <= 87; ++field) line += ";0";
  line += ";1.500000%;3.500000%;10;0;0\n";
  const auto result = parse_fio_terse(line);
  ASSERT_TRUE(result.has_value());
  EXPECT_DOUBLE_EQ(result->read_bytes_per_s, 1048576.0 * 1024);
  EXPECT_DOUBLE_EQ(result->write_bytes_per_s, 524288.0 * 1024);
  EXPECT_NEAR(result->cpu_s_per_gb, 0.05 * 2.0 / (3145728.0 * 1024 / 1e9), 1e-12);
  EXPECT_FALSE(parse_fio_terse("fio: error\n").has_value());
  EXPECT_FALSE(parse_fio_terse("3;fio-3.33;t;0;5;1;1\n").has_value());
}

}  // namespace
}  // namespace strata::io
