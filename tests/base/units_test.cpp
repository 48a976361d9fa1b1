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
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(3 * kGiB), "3.00 GiB");
}

TEST(FormatBytes, UpIsNeverLess) {
  EXPECT_EQ(format_bytes(10'215'000), "9.74 MiB");
  EXPECT_EQ(format_bytes_up(10'215'000), "9.75 MiB");
  EXPECT_EQ(format_bytes_up(9 << 20), "9.00 MiB");
  EXPECT_EQ(format_bytes_up(1000), "1000 B");
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
