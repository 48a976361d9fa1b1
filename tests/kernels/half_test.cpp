// SPDX-License-Identifier: Apache-2.0
// Values of f16: every half is what its definition says, floats are rounded to nearest even, every
// NaN is the one, and all kernels and instruction sets give these bits.
#include <cmath>

#include "tests/kernels/kernel_case.h"

namespace strata::kernels {
namespace {

// A half's value by its definition.
double value_of_half(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 1023;
  const double sign = half & 0x8000 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

Halves all_halves() {
  Halves halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  return halves;
}

// Between this half and the next: rounded down up to there, if the half is even.
float middle_above(uint16_t half) {
  const double low = value_of_half(half);
  const double high = half == 0x7bff ? 65536.0 : value_of_half(static_cast<uint16_t>(half + 1));
  return static_cast<float>((low + high) / 2);
}

// All halves, the floats around each middle, and others.
Floats floats_around_halves() {
  Floats values = {1e30f, 3.4e38f, 1e-30f, 1e-45f, INFINITY};
  for (uint32_t i = 0; i < 0x7c00; ++i) {
    const auto half = static_cast<uint16_t>(i);
    const float middle = middle_above(half);
    values.insert(values.end(), {from_f16(half), middle, std::nextafter(middle, 0.0f),
                                 std::nextafter(middle, INFINITY)});
  }
  const size_t count = values.size();
  for (size_t i = 0; i < count; ++i) values.push_back(-values[i]);
  for (const uint32_t nan : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff812345u, 0x7fffffffu}) {
    values.push_back(std::bit_cast<float>(nan));
  }
  return values;
}

TEST(Half, EveryOneHasItsValue) {
  for (const uint16_t half : all_halves()) {
    const float wide = from_f16(half);
    if ((half & 0x7c00) != 0x7c00) {
      ASSERT_EQ(wide, value_of_half(half)) << half;
      ASSERT_EQ(std::signbit(wide), (half & 0x8000) != 0) << half;
      ASSERT_EQ(to_f16(wide), half);
    } else if ((half & 0x3ff) == 0) {
      ASSERT_EQ(wide, half & 0x8000 ? -INFINITY : INFINITY);
      ASSERT_EQ(to_f16(wide), half);
    } else {
      const uint32_t quiet = half | 0x200u;  // keeps its sign and its other bits
      ASSERT_EQ(std::bit_cast<uint32_t>(wide),
                (quiet & 0x8000u) << 16 | 0x7f800000u | (quiet & 0x3ffu) << 13);
      ASSERT_EQ(to_f16(wide), 0x7e00);
    }
  }
}

// Between two neighbours the nearer one is taken, of equally near ones the even one.
TEST(Half, FloatsAreRoundedToNearestEven) {
  for (uint32_t i = 0; i < 0x7c00; ++i) {
    const auto half = static_cast<uint16_t>(i);
    const float middle = middle_above(half);
    for (const float sign : {1.0f, -1.0f}) {
      const uint32_t bit = sign < 0 ? 0x8000u : 0u;
      ASSERT_EQ(to_f16(sign * middle), bit | (i % 2 == 0 ? i : i + 1));
      ASSERT_EQ(to_f16(sign * std::nextafter(middle, 0.0f)), bit | i);
      ASSERT_EQ(to_f16(sign * std::nextafter(middle, INFINITY)), bit | (i + 1));
    }
  }
  EXPECT_EQ(to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(to_f16(-1e30f), 0xfc00);
  EXPECT_EQ(to_f16(-1e-45f), 0x8000);
}

TEST(Half, EveryNanIsTheOne) {
  for (uint32_t bits = 0x7f800001u; bits < 0x80000000u; ++bits) {
    ASSERT_EQ(to_f16(std::bit_cast<float>(bits)), 0x7e00);
    ASSERT_EQ(to_f16(std::bit_cast<float>(bits | 0x80000000u)), 0x7e00);
  }
}

// Casts widen, and a sum with -0 is the other summand; files are converted beside.
void expect_bits_of_the_base(const Backend& backend) {
  const Halves halves = all_halves();
  Floats wide(halves.size());
  backend.cast(
      {.dtype = DType::kF16, .count = std::ssize(halves), .x = halves.data(), .y = wide.data()});
  for (const uint16_t half : halves) {
    ASSERT_EQ(std::bit_cast<uint32_t>(wide[half]), std::bit_cast<uint32_t>(from_f16(half))) << half;
  }
  const Floats values = floats_around_halves();
  Halves sums(values.size(), 0x8000), written(values.size());
  backend.add_residual({.dtype = DType::kF16,
                        .count = std::ssize(values),
                        .x = sums.data(),
                        .a = values.data(),
                        .y = sums.data()});
  backend.convert_out({.dtype = DType::kF16,
                       .count = std::ssize(values),
                       .master = values.data(),
                       .dst = written.data()});
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(sums[i], to_f16(values[i])) << values[i];
    ASSERT_EQ(written[i], to_f16(values[i])) << values[i];
  }
}

TEST(Half, EveryBackendAndInstructionSetGivesTheBitsOfTheBase) {
  for (const Backend* backend : {&ref_backend(), &cpu_backend(), &twin_backend()}) {
    SCOPED_TRACE(backend->name);
    expect_bits_of_the_base(*backend);
  }
  for (const int64_t target : {int64_t{HWY_SCALAR}, int64_t{HWY_SSE4}, int64_t{HWY_AVX2}}) {
    if (target != HWY_SCALAR && (hwy::SupportedTargets() & target) == 0) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    const OnlyTarget only(target);
    expect_bits_of_the_base(cpu_backend());
  }
}

}  // namespace
}  // namespace strata::kernels
