// SPDX-License-Identifier: Apache-2.0
// Schedules of pipelines: their order, their time, and what ranks keep.
#include "engine/plan/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace strata::plan {
namespace {

// The ticks of all phases of a route, by direction, section and window.
using Ticks = std::map<std::tuple<bool, int, int>, int>;

constexpr PipelineOrder kOrders[] = {PipelineOrder::kAllForward,
                                     PipelineOrder::kOneForwardOneBackward,
                                     PipelineOrder::kDelayedProducts};

// Delayed products follow their backward, of each section in the order of windows.
void expect_products(const model::Route& route, const Windows& windows, Ticks& ticks) {
  size_t count = 0;
  for (int rank = 0; rank < route.ranks; ++rank) {
    std::map<int, int> next;  // by section: its window
    for (const Phase& phase : schedule_stage(route, rank, windows, true).phases) {
      if (!phase.products) continue;
      ++count;
      EXPECT_EQ(phase.window, next[phase.section]++);
      EXPECT_LT((ticks[{true, phase.section, phase.window}]), phase.tick);
    }
  }
  const bool delays = windows.order == PipelineOrder::kDelayedProducts;
  const int blocks = route.ranks * route.laps;  // sections with some
  EXPECT_EQ(count, delays ? static_cast<size_t>(blocks * windows.count) : 0);
}

void expect_schedule(const model::Route& route, const Windows& windows) {
  Ticks ticks;
  for (int rank = 0; rank < route.ranks; ++rank) {
    int last = -1;
    for (const Phase& phase : schedule_stage(route, rank, windows, true).phases) {
      EXPECT_EQ(route.rank_of(phase.section), rank);
      EXPECT_GT(phase.tick, last);
      last = phase.tick;
      if (phase.products) continue;
      EXPECT_TRUE(ticks.insert({{phase.backward, phase.section, phase.window}, last}).second);
    }
  }
  EXPECT_EQ(ticks.size(), static_cast<size_t>(2 * route.sections() * windows.count));
  for (const auto& [phase, tick] : ticks) {
    const auto [backward, section, window] = phase;
    const int from = section + (backward ? 1 : -1);
    if (from == -1) continue;
    const bool turns = from == route.sections();
    EXPECT_LT((ticks[{backward && !turns, turns ? section : from, window}]), tick);
  }
  expect_products(route, windows, ticks);
  for (int rank = 0; rank < route.ranks; ++rank) {
    std::set<int64_t> numbers;
    const StageSchedule schedule = schedule_stage(route, rank, windows, true);
    const auto add = [&](const Phase& sender) {
      EXPECT_TRUE(numbers.insert(number_of(route, sender, 0)).second);
    };
    for (const std::vector<Phase>& receipts : schedule.receipts) {
      for (const Phase& sender : receipts) add(sender);
    }
    for (const Phase& phase : schedule.phases) {
      if (phase.products) continue;
      if (phase.section != (phase.backward ? 0 : route.sections() - 1)) add(phase);
    }
  }
}

TEST(Pipeline, TheSlowestStageGivesTheTimeOfAStep) {
  const SectionSeconds even[] = {{2, 2}, {2, 2}, {2, 2}};
  const Windows windows = {4, PipelineOrder::kOneForwardOneBackward};
  EXPECT_DOUBLE_EQ(pipeline_step_s({.ranks = 3}, even, windows), 4.0 / 4 * (4 + 3 - 1));
  EXPECT_DOUBLE_EQ(pipeline_step_s({.ranks = 3}, even, {1}, 0.25), 3 * 4 + 4 * 0.25);
  EXPECT_DOUBLE_EQ(pipeline_step_s({.ranks = 1, .laps = 3}, even, {1}, 0.25), 3 * 4);
  const SectionSeconds one_slow[] = {{0.5, 0.5}, {4, 4}, {0.5, 0.5}};
  EXPECT_GT(pipeline_step_s({.ranks = 3}, one_slow, windows), 8.0);
  EXPECT_LT(pipeline_step_s({.ranks = 3}, one_slow, windows), 8.0 + 2 * 1.0);
}

// Ranks wait for a forward and a backward of each other rank, and have products to do meanwhile.
TEST(Pipeline, DelayedProductsFillTheWaitOfStages) {
  for (const int ranks : {2, 3, 4, 8}) {
    for (const int count : {ranks, 2 * ranks, 4 * ranks}) {
      for (const double backward_s : {1.0, 1.5, 2.0}) {
        const SectionSeconds window = {1, backward_s, 1};
        const SectionSeconds all = {count * 1.0, count * backward_s, count * 1.0};
        const std::vector<SectionSeconds> even(static_cast<size_t>(ranks), all);
        const double work_s = all.forward + all.backward + all.products;
        const double step_s =
            pipeline_step_s({.ranks = ranks}, even, {count, PipelineOrder::kDelayedProducts});
        const double wait_s = (ranks - 1) * (window.forward + window.backward - window.products);
        EXPECT_NEAR(step_s, work_s + wait_s, 1e-9) << ranks << " " << count << " " << backward_s;
      }
    }
  }
}

// No rank has more operands and kept windows than the first rank keeps without products.
TEST(Pipeline, OperandsOfDelayedProductsAreFew) {
  for (int stage = 0; stage < 4; ++stage) {
    const WindowsAtOnce at_once =
        schedule_stage({.ranks = 4}, stage, {16, PipelineOrder::kDelayedProducts}, true)
            .sections.front();
    EXPECT_EQ(at_once.kept, 4 - stage);
    EXPECT_LE(at_once.operands, 4);
    EXPECT_GE(at_once.operands, 1);
  }
}

TEST(Pipeline, ManyWindowsHaveASchedule) {
  for (const PipelineOrder order : kOrders) {
    for (const bool tied : {false, true}) {
      const model::Route route = {.ranks = 8, .embeds_on_last = tied};
      const StageSchedule schedule = schedule_stage(route, 7, {2048, order}, true);
      const int own = (tied ? 4 : 2) + (order == PipelineOrder::kDelayedProducts ? 1 : 0);
      EXPECT_EQ(schedule.phases.size(), own * 2048u);
      EXPECT_GT(number_of_norm_sum(schedule),
                number_of(route, {true, 7, 2047, schedule.ticks - 1}, 0));
    }
  }
}

// A window may have as many collectives as a plan has ops: tensor ranks have eight of them for each
// layer and micro-batch.
TEST(Pipeline, NumbersOfATickLeaveRoomForAllCollectivesOfAWindow) {
  constexpr int64_t kMostOps = int64_t{1} << 22;  // train/run_plan.cpp
  const model::Route route = {.ranks = 4};
  for (const int tick : {0, 1, 100000}) {
    EXPECT_GT(number_of(route, {false, 0, 0, tick}, 0), first_number_of(tick) + kMostOps);
    EXPECT_LT(number_of(route, {true, 3, 0, tick}, 1 << 20), first_number_of(tick + 1));
  }
}

// With windows that the ranks divide, ranks wait only for the first window and the last.
TEST(Pipeline, ChunksDivideTheWaitOfStages) {
  for (const int ranks : {2, 4, 8}) {
    for (const int laps : {1, 2, 4}) {
      const int windows = 2 * ranks;
      const StageSchedule schedule =
          schedule_stage({.ranks = ranks, .laps = laps}, 0, {windows}, true);
      EXPECT_EQ(schedule.ticks - 1, 2 * laps * windows + 2 * (ranks - 1)) << ranks << " " << laps;
      const std::vector<SectionSeconds> even(static_cast<size_t>(ranks * laps),
                                             {4.0 / laps, 4.0 / laps});
      const double wait_s = pipeline_step_s({.ranks = ranks, .laps = laps}, even, {windows}) - 8;
      EXPECT_NEAR(wait_s, 8.0 * (ranks - 1) / windows / laps, 1e-9) << ranks << " " << laps;
    }
  }
}

// No phase reads what a later tick gives, each rank has all its phases, and no two messages of a
// rank have one number.
TEST(Pipeline, EveryRouteHasASchedule) {
  for (int ranks = 2; ranks <= 5; ++ranks) {
    for (int laps = 1; laps <= 3; ++laps) {
      for (int windows = 1; windows <= 11; ++windows) {
        for (const bool tied : {false, true}) {
          for (const PipelineOrder order : kOrders) {
            expect_schedule({ranks, laps, tied}, {windows, order});
          }
        }
      }
    }
  }
}

// 1F1B keeps as many windows as there are stages from a stage on; GPipe keeps all.
TEST(Pipeline, OrdersKeepSoManyWindows) {
  for (int stage = 0; stage < 4; ++stage) {
    const auto kept = [&](const Windows& windows) {
      return schedule_stage({.ranks = 4}, stage, windows, true).sections.front().kept;
    };
    EXPECT_EQ(kept({8, PipelineOrder::kOneForwardOneBackward}), 4 - stage);
    EXPECT_EQ(kept({8, PipelineOrder::kAllForward}), 8);
    EXPECT_EQ(kept({2, PipelineOrder::kOneForwardOneBackward}), std::min(2, 4 - stage));
  }
}

}  // namespace
}  // namespace strata::plan
