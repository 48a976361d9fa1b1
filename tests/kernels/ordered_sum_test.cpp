// SPDX-License-Identifier: Apache-2.0
// Ordered sums have the bits of those that ranks compute on the host, in every backend and with
// every instruction set, also over one of their sources, with infinities and NaN; and the same bits
// for any thread count.
#include <fmt/format.h>

#include <limits>

#include "engine/comm/ordered_sum.h"
#include "kernels/buffers.h"
#include "tests/kernels/kernel_case.h"

namespace strata::kernels {
namespace {

constexpr DType kSumTypes[] = {DType::kF32, DType::kBF16};
constexpr int kSumSources[] = {1, 2, 3, 5, 8};

KernelCase ordered_sum_case(int64_t count, int sources, DType from, DType to) {
  const auto run = [=](const Backend& backend, int) {
    std::vector<Typed> x;
    x.reserve(static_cast<size_t>(sources));
    OrderedSum op = {.count = count, .sources = sources, .from = from, .to = to};
    for (size_t k = 0; k < static_cast<size_t>(sources); ++k) {
      x.emplace_back(from, random_floats(count, k + 1));
      op.x[k] = x[k].data();
    }
    Typed y(to, Floats(static_cast<size_t>(count) + 1, 9.0f));  // the last is not of the sum
    op.y = y.data();
    backend.ordered_sum(op);
    return std::vector<Floats>{y.values()};
  };
  return {fmt::format("{} of {} {} to {}", count, sources, name_of(from), name_of(to)), 0.0f, run};
}

TEST(OrderedSum, GivesTheBitsOfRefAndRepeats) {
  std::vector<KernelCase> cases;
  for (const DType from : kSumTypes) {
    for (const DType to : kSumTypes) {
      for (const int sources : kSumSources) {
        for (const int64_t count : {0, 1, 7, 33, 4099}) {
          cases.push_back(ordered_sum_case(count, sources, from, to));
        }
      }
      cases.push_back(ordered_sum_case(70001, 3, from, to));  // several blocks
    }
  }
  expect_agrees_and_repeats(cases);
}

// Calls body for each backend, and for each instruction set of cpu's.
template <typename Body>
void with_every_backend(const Body& body) {
  for (const Backend* backend : {&ref_backend(), &cpu_backend(), &twin_backend()}) {
    SCOPED_TRACE(backend->name);
    body(*backend);
  }
  for (const int64_t target : {int64_t{HWY_SCALAR}, int64_t{HWY_SSE4}, int64_t{HWY_AVX2}}) {
    if (target != HWY_SCALAR && (hwy::SupportedTargets() & target) == 0) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    const OnlyTarget only(target);
    body(cpu_backend());
  }
}

template <typename T>
constexpr DType kSumType = std::is_same_v<T, float> ? DType::kF32 : DType::kBF16;

// In [-1, 1), and a quarter of them zeros, infinities, NaN, values that overflow, and values
// between two of bf16.
template <typename T>
std::vector<T> drawn_terms(size_t count, uint64_t seed) {
  constexpr uint32_t kBits[] = {0u,          0x80000000u, 0x7f800000u, 0xff800000u,
                                0x7fc00000u, 0xffc12345u, 0x7f810001u, 0x7f7fffffu,
                                0xff7f0000u, 0x3f808000u, 0x3f818000u, 0xbf808000u,
                                0x3f807fffu, 0x3b800000u, 0x00000001u, 0x80010000u};
  const Philox random(seed);
  std::vector<T> terms;
  for (const float value : random_floats(static_cast<int64_t>(count), seed)) {
    const uint64_t drawn = random.u64(count + terms.size());
    const uint32_t bits =
        drawn % 4 == 0 ? kBits[drawn / 4 % std::size(kBits)] : std::bit_cast<uint32_t>(value);
    if constexpr (std::is_same_v<T, float>) {
      terms.push_back(std::bit_cast<float>(bits));
    } else {
      terms.push_back(static_cast<uint16_t>(bits >> 16));
    }
  }
  return terms;
}

template <typename T>
bool same_terms(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// All but the last element, which is not of the sum; so no array is empty.
template <typename From, typename To>
OrderedSum whole_sum(const std::vector<std::vector<From>>& x, std::vector<To>& y) {
  OrderedSum op = {.count = std::ssize(y) - 1,
                   .sources = static_cast<int>(x.size()),
                   .from = kSumType<From>,
                   .to = kSumType<To>,
                   .y = y.data()};
  for (size_t k = 0; k < x.size(); ++k) op.x[k] = x[k].data();
  return op;
}

// What whole_sum makes of y.
template <typename From, typename To>
std::vector<To> sum_of_ranks(const std::vector<std::vector<From>>& x, std::vector<To> y) {
  std::vector<const From*> sources;
  for (const auto& one : x) sources.push_back(one.data());
  To* const outputs[] = {y.data()};
  comm::ordered_sum<float, From, To>(sources, outputs, std::ssize(y) - 1);
  if constexpr (std::is_same_v<To, float>) {
    for (size_t i = 0; i + 1 < y.size(); ++i) y[i] = canonical(y[i]);
  }
  return y;
}

template <typename From, typename To>
void expect_sums_of_ranks(const Backend& backend) {
  for (const size_t count : {0, 1, 7, 33, 4099}) {
    for (const int sources : kSumSources) {
      SCOPED_TRACE(fmt::format("{} of {} {} to {}", count, sources, name_of(kSumType<From>),
                               name_of(kSumType<To>)));
      std::vector<std::vector<From>> x;
      for (int k = 0; k < sources; ++k) {
        x.push_back(drawn_terms<From>(count + 1, static_cast<uint64_t>(k + 1)));
      }
      const std::vector<To> before(count + 1, To(9));
      std::vector<To> y = before;
      backend.ordered_sum(whole_sum(x, y));
      EXPECT_TRUE(same_terms(y, sum_of_ranks(x, before)));
      if constexpr (std::is_same_v<From, To>) {
        for (size_t place = 0; place < x.size(); ++place) {
          std::vector<std::vector<From>> found = x, wanted = x;
          wanted[place] = sum_of_ranks(x, x[place]);
          backend.ordered_sum(whole_sum(found, found[place]));
          for (size_t k = 0; k < x.size(); ++k) {
            EXPECT_TRUE(same_terms(found[k], wanted[k])) << "over " << place << ", source " << k;
          }
        }
      }
    }
  }
}

TEST(OrderedSum, HasTheBitsOfRanksAlsoOverASource) {
  with_every_backend([](const Backend& backend) {
    expect_sums_of_ranks<float, float>(backend);
    expect_sums_of_ranks<float, uint16_t>(backend);
    expect_sums_of_ranks<uint16_t, float>(backend);
    expect_sums_of_ranks<uint16_t, uint16_t>(backend);
  });
}

struct KnownSum {
  Floats x;
  uint32_t f32;
  uint16_t bf16;
};

TEST(OrderedSum, AddsInOrderAndRoundsOnceToEven) {
  const float nan = std::bit_cast<float>(0xffc12345u), least = std::bit_cast<float>(1u);
  const float most = std::numeric_limits<float>::max();
  const KnownSum sums[] = {{{1e8f, 1.0f, -1e8f}, 0u, 0u},
                           {{1e8f, -1e8f, 1.0f}, 0x3f800000u, 0x3f80},
                           {{1.0f, 0x1p-8f}, 0x3f808000u, 0x3f80},
                           {{1.0f, 0x1p-7f, 0x1p-8f}, 0x3f818000u, 0x3f82},
                           {{1.0f, 0x1p-8f, 0x1p-8f}, 0x3f810000u, 0x3f81},
                           {{-0.0f}, 0x80000000u, 0x8000},
                           {{most}, 0x7f7fffffu, 0x7f80},
                           {{most, most, -most}, 0x7f800000u, 0x7f80},
                           {{least, least}, 2u, 0u},
                           {{INFINITY, -INFINITY, 1.0f}, 0x7fc00000u, 0x7fc0},
                           {{nan}, 0x7fc00000u, 0x7fc0},
                           {{1.0f, nan}, 0x7fc00000u, 0x7fc0}};
  constexpr size_t kCount = 19;  // whole vectors and a tail
  with_every_backend([&](const Backend& backend) {
    for (const KnownSum& sum : sums) {
      std::vector<Floats> x;
      for (const float value : sum.x) x.emplace_back(kCount + 1, value);
      Floats wide(kCount + 1);
      Halves half(kCount + 1);
      backend.ordered_sum(whole_sum(x, wide));
      backend.ordered_sum(whole_sum(x, half));
      for (size_t i = 0; i < kCount; ++i) {
        EXPECT_EQ(std::bit_cast<uint32_t>(wide[i]), sum.f32) << sum.f32 << ' ' << i;
        EXPECT_EQ(half[i], sum.bf16) << sum.bf16 << ' ' << i;
      }
    }
  });
}

// Two calls give the sum of one, as ranks that are more than an op takes need.
TEST(OrderedSum, GoesOnFromAnother) {
  with_every_backend([](const Backend& backend) {
    for (const size_t count : {1, 33, 4099}) {
      std::vector<std::vector<uint16_t>> x;
      for (uint64_t k = 0; k < 7; ++k) x.push_back(drawn_terms<uint16_t>(count + 1, k + 1));
      Halves wanted(count + 1);
      backend.ordered_sum(whole_sum(x, wanted));
      const std::vector<std::vector<uint16_t>> first(x.begin(), x.begin() + 3),
          second(x.begin() + 3, x.begin() + 5), third(x.begin() + 5, x.end());
      Floats partial(count + 1);
      Halves found(count + 1);
      backend.ordered_sum(whole_sum(first, partial));
      OrderedSum middle = whole_sum(second, partial);
      middle.before = partial.data();
      backend.ordered_sum(middle);
      OrderedSum last = whole_sum(third, found);
      last.before = partial.data();
      backend.ordered_sum(last);
      EXPECT_TRUE(same_terms(found, wanted)) << count;
    }
  });
}

TEST(OrderedSum, ItsBuffersAreItsSourcesAndTheSum) {
  Halves x(10);
  Floats y(10);
  OrderedSum op = {
      .count = 10, .sources = 3, .from = DType::kBF16, .to = DType::kF32, .y = y.data()};
  for (const size_t k : {0, 1, 2}) op.x[k] = x.data() + k;
  std::vector<std::tuple<const void*, int64_t, bool>> buffers;
  each_buffer(op, [&](auto*& pointer, int64_t bytes, bool written) {
    buffers.emplace_back(pointer, bytes, written);
  });
  EXPECT_EQ(buffers, (decltype(buffers){{x.data(), 20, false},
                                        {x.data() + 1, 20, false},
                                        {x.data() + 2, 20, false},
                                        {nullptr, 40, false},
                                        {y.data(), 40, true}}));
}

TEST(OrderedSumDeath, NoSourcesTooManyAndOtherTypesAreBugs) {
  for (const Backend* backend : {&ref_backend(), &cpu_backend(), &twin_backend()}) {
    EXPECT_DEATH(backend->ordered_sum({.sources = 0}), "is_ordered_sum");
    EXPECT_DEATH(backend->ordered_sum({.sources = kMostSources + 1}), "is_ordered_sum");
    EXPECT_DEATH(backend->ordered_sum({.sources = 1, .from = DType::kF16}), "is_ordered_sum");
    EXPECT_DEATH(backend->ordered_sum({.sources = 1, .to = DType::kF16}), "is_ordered_sum");
  }
}

}  // namespace
}  // namespace strata::kernels
