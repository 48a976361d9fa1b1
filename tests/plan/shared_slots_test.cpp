// SPDX-License-Identifier: Apache-2.0
// Slots of gradients are taken from the lowest on, by units above them, in a time that does not
// grow with the number of slots.
#include "engine/plan/shared_slots.h"

#include <gtest/gtest.h>

#include <ctime>

namespace strata::plan {
namespace {

TEST(SharedSlots, AreTakenFromTheLowestOn) {
  SharedSlots slots;
  slots.add(1, 0, 100);
  slots.add(2, 100, 100);
  slots.add(3, 200, 100);
  EXPECT_EQ(slots.take(4, 60), 0);
  EXPECT_FALSE(slots.is_free(0));
  EXPECT_EQ(slots.take(4, 140), 60) << "the rest of one and all of the next, which touch";
  EXPECT_FALSE(slots.is_free(100));
  EXPECT_TRUE(slots.is_free(200));
  EXPECT_EQ(slots.take(4, 101), -1);
  EXPECT_EQ(slots.take(4, 100), 200);
  EXPECT_EQ(slots.take(4, 1), -1);
}

TEST(SharedSlots, OfUnitsAboveAreNotTaken) {
  SharedSlots slots;
  slots.add(1, 0, 100);
  slots.add(2, 100, 100);
  EXPECT_EQ(slots.take(1, 10), -1);
  EXPECT_EQ(slots.take(2, 101), -1) << "it would reach into that of unit 2";
  EXPECT_EQ(slots.take(2, 100), 0);
  EXPECT_EQ(slots.take(2, 10), -1);
  EXPECT_TRUE(slots.is_free(100));
}

// A slot that is too small for one unit is left for the next, and the slots behind it keep their
// places.
TEST(SharedSlots, ThatAreTooSmallStay) {
  SharedSlots slots;
  slots.add(1, 0, 10);
  slots.add(1, 50, 10);
  slots.add(2, 100, 100);
  slots.add(3, 300, 100);
  EXPECT_EQ(slots.take(9, 100), 100);
  EXPECT_EQ(slots.take(9, 50), 300);
  EXPECT_TRUE(slots.is_free(0));
  EXPECT_TRUE(slots.is_free(50));
  EXPECT_EQ(slots.take(9, 10), 0);
  EXPECT_EQ(slots.take(9, 4), 50);
  EXPECT_EQ(slots.take(9, 50), 350);
  EXPECT_EQ(slots.take(9, 6), 54);
  EXPECT_EQ(slots.take(9, 1), -1);
}

// As in a model with very many layers. If each take moved all slots that are left, this would take
// minutes.
TEST(SharedSlots, ManyAreTakenAtOnce) {
  constexpr int kSlots = 400000;
  SharedSlots slots;
  for (int i = 0; i < kSlots; ++i) slots.add(i, int64_t{i} * 64, 64);
  const std::clock_t begin = std::clock();
  for (int i = 0; i < kSlots; ++i) ASSERT_EQ(slots.take(kSlots, 64), int64_t{i} * 64);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 5.0);
}

}  // namespace
}  // namespace strata::plan
