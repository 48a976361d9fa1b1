// SPDX-License-Identifier: Apache-2.0
// Sizes as users write them, and the exactness of the hi/lo split of an fp32 master.
#include "engine/base/units.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "engine/base/dtype.h"
#include "engine/base/log.h"
#include "engine/base/rng.h"

namespace strata {
namespace {

TEST(Units, SizesAreBinaryUnlessTheSuffixEndsInB) {
  EXPECT_EQ(parse_bytes("24GiB"), int64_t{24} << 30);
  EXPECT_EQ(parse_bytes("1.5 GB"), 1500000000);
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("512m"), 512 * kMiB);
}

TEST(Units, WhatIsNoSizeIsRefused) {
  for (const char* text :
       {"", "-1", "x", "1QiB", "nan", "inf", "1e30", "9223372036854775808", "1 2"}) {
    EXPECT_FALSE(parse_bytes(text).has_value()) << text;
  }
}

TEST(Units, FormatPicksTheLargestUnit) {
  EXPECT_EQ(format_bytes(12), "12 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(3 * kGiB), "3 GiB");
  EXPECT_EQ(format_bytes(122994 * kMiB), "120.1 GiB");
  EXPECT_EQ(format_bytes(0), "0 B");
}

TEST(FormatBytes, UpIsNeverLess) {
  EXPECT_EQ(format_bytes(10'215'000), "9.74 MiB");
  EXPECT_EQ(format_bytes_up(10'215'000), "9.75 MiB");
  EXPECT_EQ(format_bytes_up(9 << 20), "9 MiB");
  EXPECT_EQ(format_bytes_up(1000), "1000 B");
}

TEST(SizeOption, IsReadBackAsTheSameSizeOrALittleMore) {
  EXPECT_EQ(size_option(92 * kMiB - 1), "92MiB");
  EXPECT_EQ(size_option(122994 * kMiB), "120.2GiB");
  EXPECT_EQ(size_option(2 * kGiB), "2GiB");
  EXPECT_EQ(size_option(1023 * kGiB + 1), "1023.1GiB");
  EXPECT_EQ(size_option(301341 * kGiB + kGiB / 2), "294.28TiB");
  for (int64_t bytes = 1; bytes < (int64_t{1} << 50); bytes = bytes * 3 + 1) {
    const int64_t read = parse_bytes(size_option(bytes)).value();
    EXPECT_GE(read, bytes);
    EXPECT_LE(read, bytes + std::max(kMiB, bytes / 100));
  }
}

TEST(Duration, HasTheTwoLargestUnits) {
  EXPECT_EQ(format_duration(0), "0 s");
  EXPECT_EQ(format_duration(4.91e-6), "4.91 us");
  EXPECT_EQ(format_duration(99.6e-6), "0.0996 ms");
  EXPECT_EQ(format_duration(0.0434), "43.4 ms");
  EXPECT_EQ(format_duration(5.799), "5.8 s");
  EXPECT_EQ(format_duration(33.04), "33 s");
  EXPECT_EQ(format_duration(59.7), "59.7 s");
  EXPECT_EQ(format_duration(59.96), "1 min");
  EXPECT_EQ(format_duration(70), "1 min 10 s");
  EXPECT_EQ(format_duration(2000), "33 min");
  EXPECT_EQ(format_duration(3599), "1 h");
  EXPECT_EQ(format_duration(6225.125), "1 h 44 min");
  EXPECT_EQ(format_duration(273600), "3 days 4 h");
  EXPECT_EQ(format_duration(1e7), "116 days");
  EXPECT_EQ(format_duration(1e8), "3.17 years");
  EXPECT_EQ(format_duration(1e12), "more than 1000 years");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(std::nan("")), "?");
}

TEST(Count, HasThreeDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(0.3724), "0.372");
  EXPECT_EQ(format_count(2.5), "2.5");
  EXPECT_EQ(format_count(31.04), "31");
  EXPECT_EQ(format_count(99.96), "100");
  EXPECT_EQ(format_count(1446), "1446");
  EXPECT_EQ(format_count(14400), "14.4k");
  EXPECT_EQ(format_count(7043072), "7.04M");
  EXPECT_EQ(format_count(8030261248), "8.03B");
  EXPECT_EQ(format_count(70553706496), "70.6B");
  EXPECT_EQ(format_count(405.8e9), "406B");
  EXPECT_EQ(format_count(999.9e6), "1.00B");
}

TEST(Printable, HidesWhatATerminalWouldObey) {
  EXPECT_EQ(printable("a\x1b[2Jb\x07\tc\n\x7f"), "a\\x1b[2Jb\\x07\tc\n\\x7f");
  EXPECT_EQ(printable("Gr\xc3\xbc\xc3\x9f"), "Gr\xc3\xbc\xc3\x9f");
}

TEST(Master, HiAndLoTogetherAreTheMasterExactly) {
  const Philox random(7);
  for (uint64_t i = 0; i < 1000000; ++i) {
    const uint32_t bits = random.at(i)[0];
    const float master = std::bit_cast<float>(bits);
    if (std::isnan(master)) continue;
    const SplitMaster split = split_master(master);
    ASSERT_EQ(std::bit_cast<uint32_t>(join_master(split.hi, split.lo)), bits) << std::hex << bits;
  }
}

TEST(Master, NanBecomesTheCanonicalNan) {
  const SplitMaster split = split_master(std::bit_cast<float>(0xffffffffu));
  EXPECT_EQ(split.hi, 0x7fc0);
  EXPECT_EQ(split.lo, 0);
}

TEST(Philox, MatchesThePublishedVector) {
  // Random123's known-answer test: counter and key all zero.
  const auto x = Philox(0).at(0);
  EXPECT_EQ(x[0], 0x6627e8d5u);
  EXPECT_EQ(x[1], 0xe169c58du);
  EXPECT_EQ(x[2], 0xbc57ac4cu);
  EXPECT_EQ(x[3], 0x9b00dbd8u);
}

}  // namespace
}  // namespace strata
