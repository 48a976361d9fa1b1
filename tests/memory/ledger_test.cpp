// SPDX-License-Identifier: Apache-2.0
// The ledger's sums, its agreement with the kernel in a real process, and how stacks are
// recognised.
#include "engine/memory/ledger.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "engine/base/units.h"
#include "engine/config/json.h"
#include "engine/memory/arena.h"

namespace strata::memory {
namespace {

using config::Tier;

TEST(Ledger, SumsByTierAndPurpose) {
  Ledger ledger;
  ledger.plan(Tier::kHost, "gradients", 3 * kMiB);
  ledger.plan(Tier::kHost, "gradients", kMiB);
  ledger.plan(Tier::kNvme, "exp_avg", 8 * kMiB);
  ledger.plan_outside(Ledger::kHeap, 2 * kMiB);
  ledger.measure(Tier::kHost, "gradients", 2 * kMiB);
  ledger.measure(Tier::kHost, "gradients", kMiB);
  ASSERT_EQ(ledger.lines().size(), 3u);
  EXPECT_EQ(ledger.lines()[0].planned_bytes, 4 * kMiB);
  EXPECT_EQ(ledger.lines()[0].measured_bytes, 2 * kMiB);
  EXPECT_EQ(ledger.planned_bytes(Tier::kHost), 6 * kMiB);
  EXPECT_EQ(ledger.planned_bytes(Tier::kNvme), 8 * kMiB);
  EXPECT_EQ(ledger.planned_bytes(Tier::kDevice), 0);
}

TEST(Ledger, AnEmulatedDeviceCountsAsHostMemory) {
  Ledger ledger;
  ledger.plan(Tier::kHost, "weights", kMiB);
  ledger.plan(Tier::kDevice, "weights", 2 * kMiB);
  ledger.plan(Tier::kNvme, "weights", 4 * kMiB);
  EXPECT_EQ(ledger.check({}).counted_bytes, kMiB);
  EXPECT_EQ(ledger.check({}, true).counted_bytes, 3 * kMiB);
}

TEST(Ledger, TheTableHasTiersWithTheLargestPurposeFirst) {
  Ledger ledger;
  ledger.plan(Tier::kHost, "gradients", kMiB);
  ledger.plan(Tier::kHost, "weights", 3 * kMiB);
  ledger.plan(Tier::kNvme, "exp_avg", kGiB);
  ledger.measure(Tier::kHost, "weights", kMiB);
  EXPECT_EQ(ledger.table(),
            "bytes by tier and purpose              planned    measured\n"
            "host                                  4.00 MiB    1.00 MiB\n"
            "  weights                             3.00 MiB    1.00 MiB\n"
            "  gradients                           1.00 MiB           -\n"
            "nvme                                  1.00 GiB           -\n"
            "  exp_avg                             1.00 GiB           -\n");
  const auto items = config::Json::parse(ledger.json(), "ledger");
  EXPECT_EQ(items.items().size(), 3u);
  EXPECT_EQ(items.items()[2].find("tier")->string(), "nvme");
}

TEST(Ledger, AgreementIsFivePercentAndSixtyFourMebibytes) {
  EXPECT_TRUE((LedgerCheck{.counted_bytes = 64 * kMiB, .kernel_bytes = 0}.agrees()));
  EXPECT_FALSE((LedgerCheck{.counted_bytes = 65 * kMiB, .kernel_bytes = 0}.agrees()));
  EXPECT_TRUE((LedgerCheck{.counted_bytes = 1000 * kMiB, .kernel_bytes = 1100 * kMiB}.agrees()));
  EXPECT_FALSE((LedgerCheck{.counted_bytes = 1000 * kMiB, .kernel_bytes = 1130 * kMiB}.agrees()));
}

// A sanitizer's own memory is counted by the kernel and by nobody else.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

TEST(Ledger, AgreesWithTheKernelWhereArenasHeapAndStacksAreInUse) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer keeps memory of its own";
  Ledger ledger;
  ledger.plan(Tier::kHost, "weights", 200 * kMiB);
  const Arena arena(200 * kMiB);
  const std::vector<char> heap(100 * kMiB, 'x');
  const ProcessMemory memory = read_process_memory();
  ledger.observe(memory);
  const LedgerCheck check = ledger.check(memory);
  EXPECT_TRUE(check.agrees()) << check.counted_bytes << " counted, " << check.kernel_bytes
                              << " by the kernel";
  EXPECT_GT(check.counted_bytes, 300 * kMiB);
  // The agreement is not for free: without a line for the arena it is gone.
  Ledger without;
  without.observe(memory);
  EXPECT_FALSE(without.check(memory).agrees());
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
  EXPECT_EQ(during.thread_count, before.thread_count + 1);
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
