// SPDX-License-Identifier: Apache-2.0
// Random sequences of calls of the C API, many of them wrong: no call crashes, hangs or leaks, and
// a model of the store's states predicts which calls succeed.
//
// STRATA_SEEDS multiplies the number of sequences. STRATA_C_SEQUENCES sets it instead, for short
// ones, from the seed STRATA_C_FIRST on.
#include <cstdlib>
#include <thread>

#include "tests/c/sequence.h"
#include "tests/support/seeds.h"

namespace strata::test {
namespace {

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* given = std::getenv(name);
  return given == nullptr ? otherwise : std::atoll(given);
}

TEST_F(CApi, RandomCallsDoWhatTheStatesOfAStoreSay) {
  const int64_t wanted = from_environment("STRATA_C_SEQUENCES", 0);
  const int64_t sequences = wanted > 0 ? wanted : static_cast<int64_t>(seeds(10));
  const int64_t first = from_environment("STRATA_C_FIRST", 1);
  const uint64_t calls = wanted > 0 ? 40 : 1000;  // the most of a sequence
  int64_t steps = 0, saves = 0, orders = 0;
  for (int64_t seed = first; seed < first + sequences && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Sequence sequence(static_cast<uint64_t>(seed), directory_);
    const uint64_t count = 1 + static_cast<uint64_t>(seed) * 7919 % calls;
    for (uint64_t i = 0; i < count && !HasFatalFailure(); ++i) sequence.call();
    steps += sequence.steps();
    saves += sequence.saves();
    orders += sequence.orders();
  }
  const bool is_short = wanted > 0;  // the calls come far enough to matter
  EXPECT_GT(steps, is_short ? sequences / 50 : sequences);
  EXPECT_GT(saves, is_short ? sequences / 1000 : sequences / 5);
  EXPECT_GT(orders, is_short ? sequences / 50 : sequences);
}

// A store that threads left in any state can be loaded again, and has what it was loaded with.
void expect_to_work(strata_store* store) {
  if (store == nullptr) return;
  strata_store_discard(store);
  auto load = sized<strata_load>();
  load.fill = fill;
  const strata_status status = strata_store_load(store, &load);
  if (status == STRATA_ERROR_CONFIG) return;  // it has no unit
  ASSERT_EQ(status, STRATA_OK) << text();
  auto info = sized<strata_tensor_info>();
  ASSERT_EQ(strata_store_tensor(store, 0, 0, &info), STRATA_OK) << text();
  if (info.frozen == 0) {
    std::vector<float> values(static_cast<size_t>(info.count)), expected = values;
    fill(nullptr, STRATA_WEIGHTS, 0, 0, 0, info.count, expected.data());
    ASSERT_EQ(strata_store_read_tensor(store, 0, 0, STRATA_WEIGHTS, values.data(), info.count),
              STRATA_OK)
        << text();
    ASSERT_EQ(values, expected);
  }
  ASSERT_EQ(strata_store_begin(store), STRATA_OK) << text();
  ASSERT_EQ(strata_store_discard(store), STRATA_OK) << text();
}

TEST_F(CApi, RandomCallsOfThreadsAreDoneOrRefused) {
  constexpr int kThreads = 3, kCalls = 200;
  for (uint64_t seed = 1; seed <= seeds(4) && !HasFailure(); ++seed) {
    Shared shared = {nullptr, nullptr};
    std::vector<std::thread> threads;
    for (uint64_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        Sequence sequence(100 * seed + thread, directory_, &shared);
        for (int i = 0; i < kCalls && !HasFatalFailure(); ++i) sequence.call();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::atomic<strata_store*>& store : shared) {
      expect_to_work(store);
      EXPECT_EQ(strata_store_close(store), STRATA_OK);
    }
  }
}

}  // namespace
}  // namespace strata::test
