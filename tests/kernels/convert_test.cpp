// SPDX-License-Identifier: Apache-2.0
// Conversion between file elements and planes: unaligned bytes, exact round trips, both backends
// bit for bit. half_test.cpp has the values of f16.
#include <cmath>

#include "tests/kernels/kernel_case.h"

namespace strata::kernels {
namespace {

const Backend* const kBackends[] = {&ref_backend(), &cpu_backend()};

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

struct Form {
  bool master, hi, lo;
  DType weights = DType::kBF16;
};
constexpr Form kForms[] = {{true, false, false},
                           {false, true, true},
                           {false, true, false},
                           {true, true, false, DType::kF16},
                           {false, true, false, DType::kF16}};

// Any bits, NaN and infinities among them, at an odd address and of odd counts.
TEST(Convert, BothBackendsGiveTheSameBits) {
  const Philox random(7);
  for (const int64_t count : {1, 31, 33, 70001}) {
    std::vector<char> file(static_cast<size_t>(count) * 4 + 9);
    for (size_t i = 0; i < file.size(); ++i) {
      file[i] = static_cast<char>(i % 5 == 0 ? 0x7f : random.u64(i));
    }
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const auto planes_of = [&](const Backend* backend, const Form& form) {
        Floats wide(static_cast<size_t>(count));
        Halves hi(wide.size()), lo(wide.size());
        backend->convert_in({.dtype = dtype,
                             .weights = form.weights,
                             .count = count,
                             .src = file.data() + 1,
                             .master = form.master ? wide.data() : nullptr,
                             .hi = form.hi ? hi.data() : nullptr,
                             .lo = form.lo ? lo.data() : nullptr});
        std::vector<uint32_t> bits(wide.size());
        std::memcpy(bits.data(), wide.data(), bits.size() * 4);
        return std::tuple(bits, hi, lo);
      };
      for (const Form& form : kForms) {
        EXPECT_TRUE(planes_of(&ref_backend(), form) == planes_of(&cpu_backend(), form))
            << count << " of type " << name_of(dtype) << " to " << name_of(form.weights)
            << form.master << form.hi << form.lo;
      }
    }
  }
}

TEST(Convert, WeightsWithoutMasterKeepTheirBits) {
  Halves halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<char> file(halves.size() * 2 + 1);
  std::memcpy(file.data() + 1, halves.data(), halves.size() * 2);
  for (const DType type : {DType::kBF16, DType::kF16}) {
    for (const Backend* backend : kBackends) {
      Halves hi(halves.size());
      backend->convert_in({.dtype = type,
                           .weights = type,
                           .count = 65536,
                           .src = file.data() + 1,
                           .hi = hi.data()});
      EXPECT_EQ(hi, halves);
      std::vector<char> back(file.size());
      backend->convert_out({.dtype = type,
                            .weights = type,
                            .count = 65536,
                            .hi = hi.data(),
                            .dst = back.data() + 1});
      EXPECT_EQ(std::memcmp(back.data() + 1, halves.data(), halves.size() * 2), 0);
    }
  }
}

// What f16 weights are made from, and what they become.
TEST(Convert, F16WeightsAreRoundedAndWidened) {
  const Floats given = {1.0f, 0.1f, -70000.0f, 1e-6f, std::nanf("")};
  const auto count = static_cast<int64_t>(given.size());
  for (const Backend* backend : kBackends) {
    Floats master(given.size());
    Halves beside(given.size()), alone(given.size());
    backend->convert_in({.weights = DType::kF16,
                         .count = count,
                         .src = given.data(),
                         .master = master.data(),
                         .hi = beside.data()});
    backend->convert_in(
        {.weights = DType::kF16, .count = count, .src = given.data(), .hi = alone.data()});
    Floats exact(given.size()), wide(given.size());
    Halves bf16_of_master(given.size()), bf16_of_half(given.size());
    const auto out = [&](DType type, const float* from, void* dst) {
      backend->convert_out({.dtype = type,
                            .weights = DType::kF16,
                            .count = count,
                            .master = from,
                            .hi = beside.data(),
                            .dst = dst});
    };
    out(DType::kF32, master.data(), exact.data());
    out(DType::kF32, nullptr, wide.data());
    out(DType::kBF16, master.data(), bf16_of_master.data());
    out(DType::kBF16, nullptr, bf16_of_half.data());
    EXPECT_TRUE(same_bits(master, given) && same_bits(exact, given));
    for (size_t i = 0; i < given.size(); ++i) {
      EXPECT_EQ(beside[i], to_f16(given[i])) << i;
      EXPECT_EQ(alone[i], beside[i]) << i;
      EXPECT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(from_f16(beside[i])));
      EXPECT_EQ(bf16_of_master[i], to_bf16(given[i])) << i;
      EXPECT_EQ(bf16_of_half[i], to_bf16(wide[i])) << i;
    }
  }
}

// Of an f16 file, a master is the value, and weights beside it are rounded again: a NaN shows that.
// A file is written from the master, not from what lies beside it.
TEST(Convert, F16FilesGoThroughTheMaster) {
  const Halves file = {0x3c00, 0x0001, 0xfc00, 0xfe01};
  for (const Backend* backend : kBackends) {
    Floats master(file.size());
    Halves hi(file.size(), 0x1234), back(file.size());
    backend->convert_in({.dtype = DType::kF16,
                         .weights = DType::kF16,
                         .count = 4,
                         .src = file.data(),
                         .master = master.data(),
                         .hi = hi.data()});
    for (size_t i = 0; i + 1 < file.size(); ++i) EXPECT_EQ(master[i], from_f16(file[i])) << i;
    EXPECT_EQ(hi, (Halves{0x3c00, 0x0001, 0xfc00, 0x7e00}));
    std::fill(hi.begin(), hi.end(), uint16_t{0x1234});
    backend->convert_out({.dtype = DType::kF16,
                          .weights = DType::kF16,
                          .count = 4,
                          .master = master.data(),
                          .hi = hi.data(),
                          .dst = back.data()});
    EXPECT_EQ(back, (Halves{0x3c00, 0x0001, 0xfc00, 0x7e00}));
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
