// SPDX-License-Identifier: Apache-2.0
// What `strata bench io` makes of results that are made up: a machine profile, what is going to be
// written, rates over time, and whether drives are enough.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "bindings/cli/bench_advice.h"
#include "bindings/cli/bench_machine.h"
#include "bindings/cli/bench_report.h"
#include "bindings/cli/bench_writes.h"

namespace strata::cli {
namespace {

// --- from results to a profile ---

io::BenchResult result_of(io::BenchMode mode, uint64_t block, double gb_per_s) {
  io::BenchResult result;
  result.shape = {.mode = mode, .block_bytes = block};
  result.seconds = 1;
  result.bytes_read = static_cast<uint64_t>(gb_per_s * 1e9);
  result.cpu_s = 0.1 * gb_per_s;
  return result;
}

TEST(DriveFigures, TheShapeNearestToARunCountsAndACliffIsBelieved) {
  using enum io::BenchMode;
  std::vector<io::BenchResult> results = {
      result_of(kRead, 64 << 10, 9), result_of(kWrite, 64 << 10, 9), result_of(kMixed, 64 << 10, 9),
      result_of(kRead, 1 << 20, 3),  result_of(kWrite, 1 << 20, 2),
  };
  EXPECT_EQ(measured_drive(results)->figures.read_bytes_per_s, 9e9);  // nothing mixed at 1 MiB
  results.push_back(result_of(kMixed, 1 << 20, 2.5));
  for (int i = 0; i < 100; ++i) {
    results[4].samples.push_back({0.01 * i, 0, i < 30 ? 5e9 : 0.5e9});
  }
  results[3].seconds = 0.5;
  const auto drive = measured_drive(results);
  ASSERT_TRUE(drive.has_value());
  EXPECT_EQ(drive->shape.block_bytes, 1u << 20);
  EXPECT_EQ(drive->shortest_s, 0.5);
  EXPECT_FALSE(drive->is_careful());
  results[3].seconds = 1;
  EXPECT_TRUE(measured_drive(results)->is_careful()) << "all three have their second";
  results[3].seconds = 0.5;
  const exec::DriveFigures& figures = drive->figures;
  EXPECT_EQ(figures.read_bytes_per_s, 6e9);
  EXPECT_NEAR(figures.write_bytes_per_s, 0.5e9, 1);
  EXPECT_EQ(figures.mixed_bytes_per_s, 2.5e9);
  EXPECT_NEAR(figures.cpu_s_per_byte, 0.1e-9, 1e-15);
  results.pop_back();
  for (io::BenchResult& result : results) result.verified = false;
  EXPECT_FALSE(measured_drive(results).has_value());
}

// --- what is going to be written ---

TEST(WriteLimit, WhatIsAskedForIsKnownBefore) {
  using enum io::BenchMode;
  io::BenchOptions options;
  options.directories = {"a"};
  options.bytes = 2'000'000'000;
  const WriteQuestion usual = {.shapes = {{kRead}, {kWrite}, {kMixed}}};
  const double one = expected_write_bytes(options, usual);
  EXPECT_NEAR(one, 2e9 + 5e9 + 2.5e9, 1e6);
  EXPECT_EQ(write_limit_warning(options, usual), "") << "64 GiB are enough for the defaults";
  const WriteQuestion fio = {.shapes = usual.shapes, .rounds = 21, .compares_fio = true};
  EXPECT_NEAR(expected_write_bytes(options, fio), 2 * 2e9 + 21 * 3 * 7.5e9, 1e6);
  EXPECT_NE(write_limit_warning(options, fio).find("give --write-limit 489GiB"), std::string::npos)
      << write_limit_warning(options, fio);
  options.seconds = 300;
  EXPECT_NE(write_limit_warning(options, usual), "");
  options.limits.write_bytes_per_s = 1e6;  // all directories together
  EXPECT_EQ(write_limit_warning(options, usual), "");
  options.limits = {};
  options.seconds = 5;
  options.directories = {"a", "b"};
  EXPECT_NEAR(expected_write_bytes(options, usual), 2 * (one - 2e9) + 2e9 + 512.0 * (1 << 20), 1e6);
  const WriteQuestion two = {.shapes = {{kRead}, {.mode = kRead, .files = 2}}};
  EXPECT_NEAR(expected_write_bytes(options, two), 2 * 2e9 + 512.0 * (1 << 20), 1e6);
}

TEST(IoReport, AMinutesLongWriteShowsWhereTheCacheEnds) {
  io::BenchResult result = result_of(io::BenchMode::kWrite, 1 << 20, 2);
  for (int i = 0; i < 300; ++i) result.samples.push_back({1.0 + i, 0, i < 90 ? 6e9 : 1.5e9});
  const std::string text = io_rates_over_time(result);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + 20 + 1) << text;
  EXPECT_NE(text.find("   15.0 s    6.000 GB/s ########################################\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  300.0 s    1.500 GB/s ##########\n"), std::string::npos) << text;
  EXPECT_NE(text.find("0.25 of the best rate (a full write cache, or heat): plan with 1.500 GB/s"),
            std::string::npos)
      << text;
}

// --- whether drives are enough ---

// A step that takes 1 s and the excess that falls with a power of the count, or all at once.
TEST(FewestDrives, AreFoundWithFewQuestions) {
  for (const double power : {0.5, 1.0, 2.0, 4.0, 1e9}) {
    for (const int wanted : {1, 2, 3, 6, 7, 111, 1000, kMostDrives}) {
      for (const int first : {1, 2, 8, 110, 111, 112, kMostDrives}) {
        SCOPED_TRACE(testing::Message() << wanted << " from " << first << ", power " << power);
        int questions = 0;
        const auto step_s = [&](int drives) {
          ++questions;
          const double enough_s = drives >= wanted ? 0.05 : 0.11;
          return power > 100 ? 1 + enough_s : 1 + 0.1 * std::pow((wanted - 0.5) / drives, power);
        };
        EXPECT_EQ(fewest_drives(step_s, {.first = first, .hidden_s = 1, .limit_s = 1.1}), wanted);
        EXPECT_LE(questions, power > 100 ? 18 : 13);
      }
    }
  }
  EXPECT_EQ(fewest_drives([](int) { return 2.0; }, {.first = 5, .hidden_s = 1, .limit_s = 1.1}), 0);
}

TEST(AdviceText, SaysWhetherThereAreDrivesAndSpaceEnough) {
  Advice advice;
  advice.scratch_bytes = int64_t{8} << 30;
  advice.free_bytes = 1 << 30;
  advice.drives = 2;
  advice.drives_enough = 3;
  EXPECT_NE(advice_text(advice).find("NOT ENOUGH: 3 such drives would hide them, 1 more than"),
            std::string::npos);
  EXPECT_NE(advice_text(advice).find("but there is only 1 GiB free"), std::string::npos);
  advice.drives_enough = 1;
  EXPECT_FALSE(advice.enough());
  EXPECT_NE(advice_text(advice).find("NOT ENOUGH SPACE: 7 GiB more must be free"),
            std::string::npos);
  advice.free_bytes = advice.scratch_bytes;
  EXPECT_TRUE(advice.enough());
  EXPECT_NE(advice_text(advice).find(" ENOUGH: the transfers hide behind the compute; 1 such"),
            std::string::npos);
  advice.drives_enough = 0;
  EXPECT_NE(advice_text(advice).find("not even 1024 such drives"), std::string::npos);
}

}  // namespace
}  // namespace strata::cli
