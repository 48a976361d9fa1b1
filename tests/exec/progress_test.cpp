// SPDX-License-Identifier: Apache-2.0
// Lanes wake whoever waits for what they published, at once, and nobody else.
#include "engine/exec/progress.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/error.h"

namespace strata::exec {
namespace {

using plan::Lane;

constexpr double kLongS = 60;

// A wake-up that is lost shows as a sleep of a second, so time tells.
TEST(Progress, NoWakeUpIsLostBetweenLanesThatTakeTurns) {
  constexpr int kLanes = 4;
  constexpr int kRounds = 5000;
  Progress progress(kLongS);
  const double begin_s = now_s();
  std::vector<std::thread> lanes;
  for (int lane = 0; lane < kLanes; ++lane) {
    lanes.emplace_back([&, lane] {
      const auto before = static_cast<Lane>((lane + kLanes - 1) % kLanes);
      for (int64_t round = 1; round <= kRounds; ++round) {
        progress.wait({before, lane == 0 ? round - 1 : round});
        progress.publish(static_cast<Lane>(lane));
      }
    });
  }
  for (std::thread& lane : lanes) lane.join();
  EXPECT_EQ(progress.published(Lane::kCompute), kRounds);
  EXPECT_LT(now_s() - begin_s, 20);
}

TEST(Progress, ManyWaitForOneLaneAtDifferentCounts) {
  constexpr int kSleepers = 12;
  Progress progress(kLongS);
  std::vector<std::thread> sleepers;
  std::atomic<int> awake = 0;
  for (int s = 0; s < kSleepers; ++s) {
    sleepers.emplace_back([&, s] {
      std::mt19937_64 random(static_cast<uint64_t>(s));
      for (int64_t count = 0; count < 1000; count += 1 + static_cast<int64_t>(random() % 50)) {
        progress.wait({Lane::kWrite, count});
        EXPECT_GE(progress.published(Lane::kWrite), count);
      }
      ++awake;
    });
  }
  const double begin_s = now_s();
  for (int i = 0; i < 1000; ++i) {
    progress.publish(Lane::kWrite);
    progress.publish(Lane::kReadState);
    if (i % 10 == 0) std::this_thread::yield();
  }
  for (std::thread& sleeper : sleepers) sleeper.join();
  EXPECT_EQ(awake, kSleepers);
  EXPECT_LT(now_s() - begin_s, 20);
}

TEST(Progress, ASleeperElsewhereIsWokenByItsTargetAndByNothingElse) {
  Progress progress(kLongS);
  int woken = 0;
  progress.set_wake(Lane::kReadState, [&] { ++woken; });
  progress.begin_sleep(Lane::kReadState, Progress::Target{Lane::kCompute, 2});
  progress.publish(Lane::kOptimizer);
  progress.publish(Lane::kOptimizer);
  progress.publish(Lane::kCompute);
  EXPECT_EQ(woken, 0);
  progress.publish(Lane::kCompute);
  EXPECT_EQ(woken, 1);
  progress.end_sleep(Lane::kReadState);
  progress.publish(Lane::kCompute);
  EXPECT_EQ(woken, 1);
  progress.begin_sleep(Lane::kReadState, {});
  progress.publish(Lane::kCompute);
  EXPECT_EQ(woken, 1);
  progress.notify();
  EXPECT_EQ(woken, 2);
}

TEST(Progress, AStopEndsEverySleep) {
  Progress progress(kLongS);
  std::atomic<int> stopped = 0;
  const auto expect_stop = [&](const auto& sleep) {
    return std::thread([&, sleep] {
      try {
        sleep();
      } catch (const Progress::Stopped&) {
        ++stopped;
      }
    });
  };
  std::thread counting = expect_stop([&] { progress.wait({Lane::kWrite, 1}); });
  std::thread patient = expect_stop([&] {
    progress.wait({Lane::kWrite, 1}, Progress::TimeLimit::kNone);
  });
  std::thread looking = expect_stop([&] { progress.wait_until([] { return false; }); });
  progress.publish(Lane::kCompute);
  progress.stop();
  for (std::thread* one : {&counting, &patient, &looking}) one->join();
  EXPECT_EQ(stopped, 3);
}

TEST(Progress, NothingPublishedForTheDeadlineFailsTheRun) {
  Progress progress(0.05);
  EXPECT_THROW(progress.wait({Lane::kWrite, 1}), Progress::Stopped);
  ASSERT_TRUE(progress.failure());
  try {
    std::rethrow_exception(progress.failure());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadline);
    EXPECT_NE(std::string(error.what()).find("the lane write does not finish its work"),
              std::string::npos)
        << error.what();
  }
}

TEST(Progress, ArithmeticMayTakeLongerThanTheDeadline) {
  Progress progress(0.05);
  std::thread slow([&] {
    const Progress::Arithmetic arithmetic(progress);
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // sleepers look once a second
    progress.publish(Lane::kCompute);
  });
  while (!progress.does_arithmetic()) std::this_thread::yield();
  EXPECT_NO_THROW(progress.wait({Lane::kCompute, 1}));
  slow.join();
  EXPECT_FALSE(progress.failure());
}

}  // namespace
}  // namespace strata::exec
