// SPDX-License-Identifier: Apache-2.0
// Once a channel is made, moving bytes allocates nothing as long as all goes well: on every
// backend, with short transfers and refusals too.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>

#include "aligned_buffer.h"
#include "io/channel.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<int> allocations{0};

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (counting) ++allocations;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = alignment <= alignof(std::max_align_t)
                     ? std::malloc(bytes == 0 ? 1 : bytes)
                     : std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// All of this test program's. GCC warns of a mismatch where it inlines one of a pair alone.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return allocate(bytes, 1);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace strata::io {
namespace {

int allocations_of(const std::function<void()>& work) {
  allocations = 0;
  counting = true;
  work();
  counting = false;
  return allocations;
}

TEST(Allocation, TheCounterCounts) {
  std::unique_ptr<Transfer> kept;
  EXPECT_EQ(allocations_of([&] { kept = std::make_unique<Transfer>(); }), 1);
  EXPECT_EQ(allocations_of([&] { kept->bytes = 4096; }), 0);
  EXPECT_EQ(kept->bytes, 4096u);
}

class NoAllocation : public testing::TestWithParam<Backend> {};

TEST_P(NoAllocation, WhileTransfersMove) {
  const test::TemporaryDirectory directory("/dev/shm");
  Volume volume(
      {.directories = {directory.path()}, .bytes = 16 * kMi, .allow_memory_filesystem = true});
  const AlignedBuffer buffer(4 * kMi, 1);
  ChannelOptions options = {.backend = GetParam(),
                            .depth = 4,
                            .request_bytes = 256 << 10,
                            .regions = {{buffer.data(), buffer.bytes()}}};
  options.simulated.faults = {{FaultKind::kShort, 3, 2}, {FaultKind::kEagain, 9, 4}};
  std::unique_ptr<Channel> channel;
  try {
    channel = std::make_unique<Channel>(volume, options);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const int count = allocations_of([&] {
    for (int round = 0; round < 20; ++round) {
      for (const Direction direction : {Direction::kWrite, Direction::kRead}) {
        Transfer transfer = transfer_of(direction, 4 * kMi, buffer, 1);
        channel->submit(&transfer);
        if (!drain(*channel) || transfer.error) std::abort();
      }
    }
  });
  EXPECT_EQ(count, 0);
}

INSTANTIATE_TEST_SUITE_P(Backends, NoAllocation,
                         testing::Values(Backend::kUring, Backend::kThreads, Backend::kSimulated));

}  // namespace
}  // namespace strata::io
