// SPDX-License-Identifier: Apache-2.0
// Arenas are there in full from the start, refuse what the system cannot give, and end where they
// say.
#include "engine/memory/arena.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

// The node of a page's policy, or -1 where it has none of its own.
int preferred_node(const void* page) {
  int mode = 0;
  std::array<uint64_t, 16> nodes = {};
  const long result =
      syscall(SYS_get_mempolicy, &mode, nodes.data(), 64 * nodes.size(), page, MPOL_F_ADDR);
  if (result != 0 || mode != MPOL_PREFERRED) return -1;
  for (int node = 0; node < 64; ++node) {
    if (nodes[0] >> node & 1) return node;
  }
  return -1;
}

TEST(Arena, PagesComeFromTheNodeThatIsAskedFor) {
  const Arena anywhere(kMiB);
  if (syscall(SYS_get_mempolicy, nullptr, nullptr, 0, nullptr, 0) != 0) {
    GTEST_SKIP() << "the system has no NUMA policies";
  }
  EXPECT_EQ(preferred_node(anywhere.data()), -1);
  const Arena near(3 * kMiB, 0);
  EXPECT_EQ(preferred_node(near.data()), 0);
  EXPECT_EQ(preferred_node(near.data() + near.bytes() - 1), 0);
  const Arena of_none(kMiB, 1000);  // which no test machine has
  EXPECT_EQ(preferred_node(of_none.data()), -1);
  EXPECT_EQ(of_none.data()[0], std::byte{0});
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
