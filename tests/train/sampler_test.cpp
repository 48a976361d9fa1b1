// SPDX-License-Identifier: Apache-2.0
// A shuffle is a bijection, differs between epochs and seeds, has no visible order, and never
// changes.
#include "engine/data/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace strata::data {
namespace {

std::vector<int64_t> order_of(uint64_t seed, uint64_t epoch, int64_t count) {
  const Shuffle shuffle(seed, epoch, count);
  std::vector<int64_t> order;
  for (int64_t k = 0; k < count; ++k) order.push_back(shuffle.at(k));
  return order;
}

TEST(Shuffle, HoldsEveryItemOnce) {
  for (const int64_t count : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4097}) {
    std::vector<int> seen(static_cast<size_t>(count), 0);
    for (const int64_t item : order_of(42, 3, count)) ++seen.at(static_cast<size_t>(item));
    EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(count), 1)) << count;
  }
}

TEST(Shuffle, EpochsAndSeedsHaveOrdersOfTheirOwn) {
  EXPECT_NE(order_of(1, 0, 100), order_of(1, 1, 100));
  EXPECT_NE(order_of(1, 0, 100), order_of(2, 0, 100));
  EXPECT_EQ(order_of(1, 5, 100), order_of(1, 5, 100));
}

// Resumed runs rely on it.
TEST(Shuffle, TheOrderOfASeedNeverChanges) {
  EXPECT_EQ(order_of(7, 0, 10), (std::vector<int64_t>{2, 3, 8, 7, 5, 4, 9, 6, 1, 0}));
}

TEST(Shuffle, ItemsDoNotFollowTheirPlaces) {
  const int64_t count = 20000;
  const std::vector<int64_t> order = order_of(9, 0, count);
  double product = 0;
  int neighbours = 0;
  for (int64_t k = 0; k < count; ++k) {
    const double middle = static_cast<double>(count - 1) / 2;
    const auto item = order[static_cast<size_t>(k)];
    product += (static_cast<double>(k) - middle) * (static_cast<double>(item) - middle);
    if (k > 0 && item == order[static_cast<size_t>(k - 1)] + 1) ++neighbours;
  }
  const double variance = static_cast<double>(count) * static_cast<double>(count) / 12;
  EXPECT_LT(std::abs(product / static_cast<double>(count) / variance),
            0.03);           // 4 standard deviations
  EXPECT_LT(neighbours, 8);  // 1 is expected
}

// Every place is about equally likely for the first item over many seeds.
TEST(Shuffle, PlacesAreUniformOverSeeds) {
  std::vector<int> counts(10, 0);
  for (uint64_t seed = 0; seed < 10000; ++seed)
    ++counts[static_cast<size_t>(Shuffle(seed, 0, 10).at(0))];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 120);  // 4 standard deviations
}

TEST(Shuffle, LargeRangesNeedNoTable) {
  const Shuffle shuffle(3, 0, int64_t{1} << 50);
  EXPECT_NE(shuffle.at(0), shuffle.at(1));
  EXPECT_LT(shuffle.at((int64_t{1} << 50) - 1), int64_t{1} << 50);
}

}  // namespace
}  // namespace strata::data
