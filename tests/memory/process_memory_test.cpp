// SPDX-License-Identifier: Apache-2.0
// What a real process counts of its memory agrees with the kernel, and how stacks are recognised.
#include "engine/memory/process_memory.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/base/units.h"
#include "engine/memory/arena.h"

namespace strata::memory {
namespace {

// A sanitizer's own memory is counted by the kernel and by nobody else.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

TEST(ProcessMemory, AgreesWithTheKernelWhereArenasHeapAndStacksAreInUse) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer keeps memory of its own";
  const Arena arena(200 * kMiB);
  const std::vector<char> heap(100 * kMiB, 'x');
  const ProcessMemory memory = read_process_memory();
  const int64_t counted_bytes = memory.counted_bytes(arena.bytes());
  const int64_t tolerance_bytes = memory.resident_peak_bytes / 20 + 64 * kMiB;
  EXPECT_NEAR(counted_bytes, memory.resident_peak_bytes, tolerance_bytes);
  EXPECT_GT(counted_bytes, 300 * kMiB);
  EXPECT_LT(memory.counted_bytes(0), memory.resident_peak_bytes - tolerance_bytes)
      << "without the arena there is no agreement";
}

TEST(ProcessMemory, StacksOfThreadsCount) {
  const ProcessMemory before = read_process_memory();
  std::mutex mutex;
  std::condition_variable changed;
  bool touched = false;
  bool done = false;
  std::thread thread([&] {
    volatile char big[4 * kMiB];
    for (size_t at = 0; at < sizeof big; at += 4096) big[at] = 1;
    std::unique_lock lock(mutex);
    touched = true;
    changed.notify_all();
    changed.wait(lock, [&] { return done; });
  });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return touched; });
  }
  const ProcessMemory during = read_process_memory();
  {
    const std::lock_guard lock(mutex);
    done = true;
  }
  changed.notify_all();
  thread.join();
  EXPECT_GE(during.stack_bytes, before.stack_bytes + 4 * kMiB);
}

TEST(ProcessMemory, OnlyWhatStandsBehindASmallGuardIsAStack) {
  const std::string smaps =
      "7f0000000000-7f0000001000 ---p 00000000 00:00 0 \nRss: 0 kB\n"
      "7f0000001000-7f0000801000 rw-p 00000000 00:00 0 \nRss:  12 kB\n"
      "7f0000900000-7f0000b00000 ---p 00000000 00:00 0 \nRss: 0 kB\n"
      "7f0000b00000-7f0000c00000 rw-p 00000000 00:00 0 \nRss: 1000 kB\n"
      "7f0000d00000-7f0000e00000 rw-p 00000000 08:01 77 /lib/x.so\nRss: 500 kB\n"
      "7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0   [stack]\nRss: 20 kB\n";
  EXPECT_EQ(stack_bytes_of(smaps), 32 * kKiB);
}

}  // namespace
}  // namespace strata::memory
