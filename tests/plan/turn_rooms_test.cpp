// SPDX-License-Identifier: Apache-2.0
// Rooms of gradients are lent from the lowest on, to units above them, in time that does not grow
// with the rooms that there are.
#include "engine/plan/turn_rooms.h"

#include <gtest/gtest.h>

#include <ctime>

namespace strata::plan {
namespace {

TEST(TurnRooms, AreTakenFromTheLowestOn) {
  TurnRooms rooms;
  rooms.add(1, 0, 100);
  rooms.add(2, 100, 100);
  rooms.add(3, 200, 100);
  EXPECT_EQ(rooms.take(4, 60), 0);
  EXPECT_FALSE(rooms.is_free(0));
  EXPECT_EQ(rooms.take(4, 140), 60) << "the rest of one and all of the next, which touch";
  EXPECT_FALSE(rooms.is_free(100));
  EXPECT_TRUE(rooms.is_free(200));
  EXPECT_EQ(rooms.take(4, 101), -1);
  EXPECT_EQ(rooms.take(4, 100), 200);
  EXPECT_EQ(rooms.take(4, 1), -1);
}

TEST(TurnRooms, OfUnitsAboveAreNotTaken) {
  TurnRooms rooms;
  rooms.add(1, 0, 100);
  rooms.add(2, 100, 100);
  EXPECT_EQ(rooms.take(1, 10), -1);
  EXPECT_EQ(rooms.take(2, 101), -1) << "it would reach into that of unit 2";
  EXPECT_EQ(rooms.take(2, 100), 0);
  EXPECT_EQ(rooms.take(2, 10), -1);
  EXPECT_TRUE(rooms.is_free(100));
}

// What is too small for one is there for the next, and what lies behind it keeps its place.
TEST(TurnRooms, ThatAreTooSmallStay) {
  TurnRooms rooms;
  rooms.add(1, 0, 10);
  rooms.add(1, 50, 10);
  rooms.add(2, 100, 100);
  rooms.add(3, 300, 100);
  EXPECT_EQ(rooms.take(9, 100), 100);
  EXPECT_EQ(rooms.take(9, 50), 300);
  EXPECT_TRUE(rooms.is_free(0));
  EXPECT_TRUE(rooms.is_free(50));
  EXPECT_EQ(rooms.take(9, 10), 0);
  EXPECT_EQ(rooms.take(9, 4), 50);
  EXPECT_EQ(rooms.take(9, 50), 350);
  EXPECT_EQ(rooms.take(9, 6), 54);
  EXPECT_EQ(rooms.take(9, 1), -1);
}

// Of a model with very many layers: moving up all rooms that are left at each take would take
// minutes.
TEST(TurnRooms, ManyAreTakenAtOnce) {
  constexpr int kRooms = 400000;
  TurnRooms rooms;
  for (int i = 0; i < kRooms; ++i) rooms.add(i, int64_t{i} * 64, 64);
  const std::clock_t begin = std::clock();
  for (int i = 0; i < kRooms; ++i) ASSERT_EQ(rooms.take(kRooms, 64), int64_t{i} * 64);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 5.0);
}

}  // namespace
}  // namespace strata::plan
