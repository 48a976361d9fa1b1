// SPDX-License-Identifier: Apache-2.0
// Values in 8 bits: which step they are rounded to, that their mean stays, and what is not finite.
#include "engine/comm/mx_int8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/rng.h"

namespace strata::comm {
namespace {

FloatBlock rounded(const FloatBlock& block) {
  return from_mx_int8(to_mx_int8(block));
}

// Of this magnitude, with all bits drawn.
FloatBlock drawn(uint64_t seed, int exponent) {
  FloatBlock block;
  for (int i = 0; i < kMxBlock; ++i) {
    const auto bits = static_cast<int32_t>(Philox(11).u64(seed, static_cast<uint64_t>(i)) >> 32);
    block.v[i] = std::ldexp(static_cast<float>(bits), exponent - 31);
  }
  return block;
}

float largest(const FloatBlock& block) {
  float most = 0;
  for (const float value : block.v) most = std::max(most, std::abs(value));
  return most;
}

TEST(MxInt8, RoundsToANeighbouringStep) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const FloatBlock block = drawn(seed, static_cast<int>(seed % 200) - 100);
    const MxInt8Block sent = to_mx_int8(block);
    const FloatBlock back = from_mx_int8(sent);
    const float step = std::ldexp(1.0f, sent.exponent - 133);
    EXPECT_LE(largest(block), 127 * step);
    EXPECT_GT(largest(block), 63 * step) << "a bit is lost";
    for (int i = 0; i < kMxBlock; ++i) {
      EXPECT_LT(std::abs(back.v[i] - block.v[i]), step);
      EXPECT_EQ(back.v[i], static_cast<float>(sent.v[i]) * step);
    }
  }
}

TEST(MxInt8, WhatItCanSayStays) {
  FloatBlock block = {};
  for (int i = 0; i < kMxBlock; ++i) block.v[i] = static_cast<float>(8 * i - 124) * 0x1p-20f;
  block.v[0] = 127 * 0x1p-20f;
  block.v[1] = -0.0f;
  const FloatBlock back = rounded(block);
  for (int i = 0; i < kMxBlock; ++i) EXPECT_EQ(back.v[i], block.v[i]) << i;
  EXPECT_EQ(largest(rounded({})), 0);
}

// Values far below a step of their block, which rounding to nearest would make zero.
TEST(MxInt8, TheMeanOfSmallValuesStays) {
  for (const float scale : {1.0f, 0.1f, 0.02f}) {
    double sum = 0, due = 0, squares = 0;
    for (uint64_t seed = 0; seed < 20000; ++seed) {
      FloatBlock block = drawn(seed, 0);
      for (float& value : block.v) value = std::abs(value) * scale / 127;
      block.v[0] = 1;
      const FloatBlock back = rounded(block);
      for (int i = 1; i < kMxBlock; ++i) {
        sum += back.v[i];
        due += block.v[i];
        squares += std::pow(back.v[i] - block.v[i], 2);
      }
    }
    EXPECT_LT(std::abs(sum - due), 4 * std::sqrt(squares)) << scale;
  }
}

TEST(MxInt8, WhatIsNotFiniteMakesItsBlockNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float odd :
       {kInfinity, -kInfinity, std::nanf(""), std::numeric_limits<float>::max()}) {
    FloatBlock block = drawn(3, 0);
    block.v[17] = odd;
    for (const float value : rounded(block).v) EXPECT_TRUE(std::isnan(value)) << odd;
  }
  FloatBlock large = {};
  large.v[5] = -0x1.fcp127f;
  EXPECT_EQ(rounded(large).v[5], -0x1.fcp127f);
  large.v[5] = 0x1.fdp127f;
  EXPECT_TRUE(std::isnan(rounded(large).v[5]));
}

TEST(MxInt8, TheSmallestValuesAreRoundedLikeOthers) {
  int ups = 0;
  for (int i = 0; i < 1000; ++i) {
    FloatBlock tiny = {};
    tiny.v[0] = static_cast<float>(i % 100 + 1) * 0x1p-126f;
    tiny.v[1] = 0x1.8p-126f;
    tiny.v[2] = static_cast<float>(i / 10) * 0x1p-126f;
    const FloatBlock back = rounded(tiny);
    EXPECT_TRUE(back.v[1] == 0x1p-126f || back.v[1] == 0x1p-125f) << back.v[1];
    ups += back.v[1] == 0x1p-125f ? 1 : 0;
  }
  EXPECT_NEAR(ups, 500, 80);
}

// Where others of its block change, as gradients do from step to step.
TEST(MxInt8, TheMeanOfAValueThatRepeatsStays) {
  for (const float value : {0.1f, 0.25f, 0.5f, 0.7f}) {
    double sum = 0;
    constexpr int kSteps = 4000;
    for (uint64_t step = 0; step < kSteps; ++step) {
      FloatBlock block = drawn(step, -3);
      block.v[7] = value;
      block.v[8] = 96;
      sum += rounded(block).v[7];
    }
    EXPECT_NEAR(sum / kSteps, value, 4 * 0.5 / std::sqrt(kSteps)) << value;
  }
}

}  // namespace
}  // namespace strata::comm
