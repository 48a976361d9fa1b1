// SPDX-License-Identifier: Apache-2.0
#include "engine/base/tasks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <stdexcept>
#include <thread>

namespace strata {
namespace {

TEST(Tasks, EachRunsOnce) {
  std::vector<int> runs(1000);
  std::vector<std::function<void()>> tasks;
  for (int& count : runs) tasks.push_back([&count] { ++count; });
  run_tasks(tasks);
  EXPECT_EQ(runs, std::vector<int>(1000, 1));
  run_tasks({});
}

TEST(Tasks, TwoRunAtTheSameTime) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one core";
  std::barrier meeting(2);
  const auto meet = [&] { meeting.arrive_and_wait(); };
  run_tasks({meet, meet});
}

TEST(Tasks, TheTasksOfATaskRunOnItsThread) {
  std::atomic<int> ended = 0, elsewhere = 0;
  const auto outer = [&] {
    const std::thread::id own = std::this_thread::get_id();
    const auto inner = [&] {
      ++ended;
      if (std::this_thread::get_id() != own) ++elsewhere;
    };
    run_tasks({inner, inner, inner});
  };
  run_tasks({outer, outer});
  EXPECT_EQ(ended, 6);
  EXPECT_EQ(elsewhere, 0);
}

TEST(Tasks, TheFirstFailureOfTheListIsThrownOnceAllHaveEnded) {
  std::atomic<int> ended = 0;
  const auto fail = [&](const char* text) {
    return [&ended, text] {
      ++ended;
      throw std::runtime_error(text);
    };
  };
  const auto work = [&] { ++ended; };
  try {
    run_tasks({work, fail("second"), work, fail("fourth"), work});
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "second");
  }
  EXPECT_EQ(ended, 5);
}

}  // namespace
}  // namespace strata
