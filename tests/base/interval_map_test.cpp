// SPDX-License-Identifier: Apache-2.0
// An interval map answers like an array with an element for each address, at any scale of
// addresses and however many intervals it has.
#include "engine/base/interval_map.h"

#include <gtest/gtest.h>

#include <random>

namespace strata {
namespace {

struct Comparison {
  int elements;   // of the array
  int64_t scale;  // addresses of an element
  int longest;    // elements of a range
  int values;     // few: neighbours are often equal
};

class IntervalMapTest : public testing::TestWithParam<Comparison> {};

TEST_P(IntervalMapTest, AgreesWithAnArray) {
  const Comparison& shape = GetParam();
  const int64_t scale = shape.scale;
  std::mt19937 random(7);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  IntervalMap<int> map;
  std::vector<int> array(static_cast<size_t>(shape.elements), 0);
  for (int round = 0; round < 20000; ++round) {
    const int begin = pick(0, shape.elements - 1);
    const int end = pick(begin + 1, std::min(begin + shape.longest, shape.elements));
    const int action = pick(0, 2);
    const int value = pick(0, shape.values);
    if (action == 0) {
      std::vector<std::pair<int64_t, int>> before;
      map.assign(begin * scale, end * scale, value,
                 [&](int64_t low, int was) { before.emplace_back(low / scale, was); });
      ASSERT_EQ(before.front().first, begin);
      before.emplace_back(end, 0);
      for (size_t part = 0; part + 1 < before.size(); ++part) {
        for (int64_t i = before[part].first; i < before[part + 1].first; ++i) {
          ASSERT_EQ(array[static_cast<size_t>(i)], before[part].second) << "round " << round;
        }
      }
    }
    if (action == 1) map.update(begin * scale, end * scale, [&](int64_t, int& at) { at += value; });
    for (int i = begin; i < end; ++i) {
      int& at = array[static_cast<size_t>(i)];
      at = action == 0 ? value : action == 1 ? at + value : at;
    }
    int64_t next = begin * scale;
    map.each(begin * scale, end * scale, [&](int64_t low, int64_t high, int found) {
      ASSERT_EQ(low, next);
      ASSERT_LT(low, high);
      ASSERT_EQ(low % scale, 0);
      for (int64_t i = low / scale; i < high / scale; ++i) {
        ASSERT_EQ(array[static_cast<size_t>(i)], found) << "round " << round << " element " << i;
      }
      next = high;
    });
    ASSERT_EQ(next, end * scale);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, IntervalMapTest,
                         testing::Values(Comparison{64, 1, 64, 3}, Comparison{64, 1000, 64, 1},
                                         Comparison{5000, int64_t{1} << 40, 3, 1000},
                                         Comparison{5000, 4096, 2000, 1000}));

// Chunks that are written one by one are read as one.
TEST(IntervalMap, JoinsWhatTouchesAndIsEqual) {
  IntervalMap<int> map;
  const auto pieces = [&] {
    int count = 0;
    map.each(0, 100, [&](int64_t, int64_t, int) { ++count; });
    return count;
  };
  EXPECT_EQ(pieces(), 1);
  map.assign(10, 20, 1);
  map.assign(30, 40, 1);
  EXPECT_EQ(pieces(), 5);
  map.assign(20, 30, 1);
  EXPECT_EQ(pieces(), 3);
  map.assign(10, 40, 0);
  EXPECT_EQ(pieces(), 1);
  map.assign(10, 40, 1);
  map.clear();
  EXPECT_EQ(pieces(), 1);
}

}  // namespace
}  // namespace strata
