// SPDX-License-Identifier: Apache-2.0
// Conversion between file elements and planes: every half, unaligned bytes, exact round trips, both
// backends bit for bit.
#include <cmath>

#include "tests/kernels/kernel_case.h"

namespace strata::kernels {
namespace {

const Backend* const kBackends[] = {&ref_backend(), &cpu_backend()};

// A half's value by its definition.
double value_of_half(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 1023;
  const double sign = half & 0x8000 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Convert, EveryHalfIsExact) {
  Halves halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  for (const Backend* backend : kBackends) {
    Floats wide(halves.size());
    backend->convert_in(
        {.dtype = DType::kF16, .count = 65536, .src = halves.data(), .master = wide.data()});
    for (size_t i = 0; i < halves.size(); ++i) {
      if ((halves[i] & 0x7c00) != 0x7c00) {
        ASSERT_EQ(wide[i], value_of_half(halves[i])) << i;
        ASSERT_EQ(std::signbit(wide[i]), (i & 0x8000) != 0) << i;
      } else if ((halves[i] & 0x3ff) == 0) {
        ASSERT_EQ(wide[i], i & 0x8000 ? -INFINITY : INFINITY);
      } else {
        ASSERT_TRUE(std::isnan(wide[i])) << i;
      }
    }
  }
}

// An 8-bit value by its definition: 4 bits of exponent, 3 of fraction, NaN where all are ones.
double value_of_f8(uint8_t bits) {
  const int exponent = (bits >> 3) & 15;
  const int fraction = bits & 7;
  const double sign = bits & 0x80 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(fraction, -9);
  return sign * std::ldexp(8 + fraction, exponent - 10);
}

TEST(Convert, EveryF8IsExact) {
  std::vector<uint8_t> bytes(256);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  for (const Backend* backend : kBackends) {
    Floats wide(bytes.size());
    backend->convert_in(
        {.dtype = DType::kF8E4M3, .count = 256, .src = bytes.data(), .master = wide.data()});
    for (size_t i = 0; i < bytes.size(); ++i) {
      if ((i & 0x7f) == 0x7f) {
        ASSERT_TRUE(std::isnan(wide[i])) << i;
      } else {
        ASSERT_EQ(wide[i], value_of_f8(bytes[i])) << i;
        ASSERT_EQ(std::signbit(wide[i]), (i & 0x80) != 0) << i;
      }
    }
  }
}

// Halves come back as they were; between two neighbours the nearer one is taken, of equally near
// ones the even one.
TEST(Convert, HalvesAreRoundedToNearestEven) {
  for (const Backend* backend : kBackends) {
    const auto rounded = [&](float value) {
      uint16_t half = 0;
      backend->convert_out({.dtype = DType::kF16, .count = 1, .master = &value, .dst = &half});
      return half;
    };
    for (uint32_t half = 0; half < 0x7c00; ++half) {
      const double low = value_of_half(static_cast<uint16_t>(half));
      const double high = half == 0x7bff ? 65536.0 : value_of_half(static_cast<uint16_t>(half + 1));
      const auto middle = static_cast<float>((low + high) / 2);
      ASSERT_EQ(rounded(static_cast<float>(low)), half);
      ASSERT_EQ(rounded(-static_cast<float>(low)), half | 0x8000);
      ASSERT_EQ(rounded(middle), half % 2 == 0 ? half : half + 1);
      ASSERT_EQ(rounded(std::nextafter(middle, 0.0f)), half);
      ASSERT_EQ(rounded(std::nextafter(middle, INFINITY)), half + 1);
    }
    EXPECT_EQ(rounded(1e30f), 0x7c00);
    EXPECT_EQ(rounded(-INFINITY), 0xfc00);
    EXPECT_EQ(rounded(std::nanf("")) & 0x7e00, 0x7e00);
  }
}

TEST(Convert, UnalignedFloatsComeBackExactly) {
  const Floats values = random_floats(40001, 1);
  std::vector<char> file(values.size() * 4 + 1);
  std::memcpy(file.data() + 1, values.data(), values.size() * 4);
  const auto count = static_cast<int64_t>(values.size());
  for (const Backend* backend : kBackends) {
    Halves hi(values.size()), lo(values.size());
    backend->convert_in({.dtype = DType::kF32,
                         .count = count,
                         .src = file.data() + 1,
                         .hi = hi.data(),
                         .lo = lo.data()});
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(hi[i], to_bf16(values[i]));
    std::vector<char> back(file.size());
    backend->convert_out({.dtype = DType::kF32,
                          .count = count,
                          .hi = hi.data(),
                          .lo = lo.data(),
                          .dst = back.data() + 1});
    EXPECT_EQ(std::memcmp(back.data() + 1, values.data(), values.size() * 4), 0);
  }
}

// Any bits, NaN and infinities among them, at an odd address and of odd counts.
TEST(Convert, BothBackendsGiveTheSameBits) {
  const Philox random(7);
  for (const int64_t count : {1, 31, 33, 70001}) {
    std::vector<char> file(static_cast<size_t>(count) * 4 + 9);
    for (size_t i = 0; i < file.size(); ++i) {
      file[i] = static_cast<char>(i % 5 == 0 ? 0x7f : random.u64(i));
    }
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const auto planes_of = [&](const Backend* backend, bool master, bool with_lo) {
        Floats wide(static_cast<size_t>(count));
        Halves hi(wide.size()), lo(wide.size());
        backend->convert_in({.dtype = dtype,
                             .count = count,
                             .src = file.data() + 1,
                             .master = master ? wide.data() : nullptr,
                             .hi = master ? nullptr : hi.data(),
                             .lo = with_lo ? lo.data() : nullptr});
        std::vector<uint32_t> bits(wide.size());
        std::memcpy(bits.data(), wide.data(), bits.size() * 4);
        return std::tuple(bits, hi, lo);
      };
      for (const auto& [master, with_lo] :
           {std::pair(true, false), {false, true}, {false, false}}) {
        EXPECT_TRUE(planes_of(&ref_backend(), master, with_lo) ==
                    planes_of(&cpu_backend(), master, with_lo))
            << count << " of type " << static_cast<int>(dtype) << ' ' << master << with_lo;
      }
    }
  }
}

TEST(Convert, Bf16PlanesKeepTheirBits) {
  Halves halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<char> file(halves.size() * 2 + 1);
  std::memcpy(file.data() + 1, halves.data(), halves.size() * 2);
  for (const Backend* backend : kBackends) {
    Halves hi(halves.size());
    backend->convert_in(
        {.dtype = DType::kBF16, .count = 65536, .src = file.data() + 1, .hi = hi.data()});
    EXPECT_EQ(hi, halves);
    std::vector<char> back(file.size());
    backend->convert_out(
        {.dtype = DType::kBF16, .count = 65536, .hi = hi.data(), .dst = back.data() + 1});
    EXPECT_EQ(std::memcmp(back.data() + 1, halves.data(), halves.size() * 2), 0);
  }
}

TEST(Convert, AMasterIsRoundedForABf16File) {
  const Floats master = random_floats(1000, 2);
  for (const Backend* backend : kBackends) {
    Halves out(master.size());
    backend->convert_out(
        {.dtype = DType::kBF16, .count = 1000, .master = master.data(), .dst = out.data()});
    for (size_t i = 0; i < master.size(); ++i) ASSERT_EQ(out[i], to_bf16(master[i]));
  }
}

}  // namespace
}  // namespace strata::kernels
