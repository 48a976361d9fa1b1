// SPDX-License-Identifier: Apache-2.0
// Arenas are there in full from the start, refuse what the system cannot give, and end where they
// say.
#include "engine/memory/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/limits.h"

namespace strata::memory {
namespace {

TEST(Arena, IsAlignedZeroAndPresent) {
  const Arena arena(3 * kMiB + 5);
  EXPECT_EQ(arena.bytes(), 3 * kMiB + kPageBytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.data()) % (2 * kMiB), 0u);
  const auto all = arena.slot(0, arena.bytes());
  std::vector<unsigned char> present(static_cast<size_t>(arena.bytes() / kPageBytes));
  ASSERT_EQ(mincore(arena.data(), all.size(), present.data()), 0);
  EXPECT_TRUE(
      std::all_of(present.begin(), present.end(), [](unsigned char page) { return page & 1; }));
  EXPECT_TRUE(
      std::all_of(all.begin(), all.end(), [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST(Arena, SlotsAreViewsOfOneBlock) {
  const Arena arena(kMiB);
  arena.slot(4096, 16)[3] = std::byte{7};
  EXPECT_EQ(arena.data()[4099], std::byte{7});
  EXPECT_EQ(arena.slot(arena.bytes(), 0).size(), 0u);
}

TEST(ArenaDeathTest, ASlotBeyondTheEndIsABug) {
  const Arena arena(kMiB);
  EXPECT_DEATH(arena.slot(arena.bytes() - 8, 9), "internal error");
  EXPECT_DEATH(arena.slot(-1, 1), "internal error");
  EXPECT_DEATH(arena.slot(1, INT64_MAX), "internal error");
}

TEST(ArenaDeathTest, TheBytesAroundItCannotBeTouched) {
  const Arena arena(kMiB);
  volatile std::byte* data = arena.data();
  EXPECT_DEATH(data[arena.bytes()] = std::byte{1}, "");
  EXPECT_DEATH(data[-1] = std::byte{1}, "");
}

TEST(Arena, MoreThanTheSystemHasIsRefusedBeforeItIsTouched) {
  const int64_t bytes = config::read_limits().memory_total_bytes + kGiB;
  try {
    const Arena arena(bytes);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit);
    EXPECT_NE(std::string(error.what()).find("lower --host-memory"), std::string::npos);
  }
}

TEST(Arena, MovesItsBlock) {
  Arena first(kMiB);
  std::byte* data = first.data();
  Arena second(std::move(first));
  EXPECT_EQ(second.data(), data);
  first = Arena(2 * kMiB);
  second = std::move(first);
  EXPECT_EQ(second.bytes(), 2 * kMiB);
}

}  // namespace
}  // namespace strata::memory
