// SPDX-License-Identifier: Apache-2.0
// A trace has every op of its steps once, on threads whose events ascend and do not overlap; the
// lanes of a step, joined for drawing, cover the same time.
#include "engine/train/trace.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <set>

#include "engine/plan/simulator.h"
#include "engine/train/lanes.h"
#include "tests/support/trace_check.h"
#include "tests/train/plan_fixture.h"

namespace strata::train {
namespace {

// The simulator's times as if measured, with longer transfers, so that these overlap on their lane.
// Copy `copy` of several.
std::unique_ptr<exec::Instance> measured(const RunPlan& run, int copy) {
  constexpr int kCopies = 4;
  const plan::Plan& plan = run.ranks.front();
  const plan::Program& program = plan.program(plan::ProgramName::kStep);
  const auto result = plan::simulate(plan, plan::ProgramName::kStep, run.rates,
                                     {.copies = kCopies, .keep_times = true});
  auto instance = std::make_unique<exec::Instance>();
  instance->times.resize(plan::kLaneCount);
  for (size_t lane = 0; lane < instance->times.size(); ++lane) {
    for (const uint32_t op : program.lanes[lane]) {
      const auto& time = result.times[static_cast<size_t>(copy) * program.ops.size() + op];
      const double longer_s = is_io_lane(static_cast<plan::Lane>(lane)) ? 3 : 1;
      const double length_s = longer_s * (time.end_s - time.begin_s);
      instance->times[lane].push_back({op, 10 + time.begin_s, 10 + time.begin_s + length_s});
    }
  }
  instance->stalls = {{plan::Lane::kReadState, 10.5, 10.75}, {plan::Lane::kWrite, 11, 11.5}};
  instance->end_s = 10 + result.copy_end_s[static_cast<size_t>(copy)];
  return instance;
}

RunPlan small_run() {
  config::Options options = bf16_options(1);
  options.sequence_length = 128;
  options.host_memory = int64_t{700} << 20;
  options.offload = config::Offload::kNvme;
  return planned(profile("small-2core"), llama(2, 512), options);
}

TEST(Trace, EventsOfALaneNeitherOverlapNorGoBack) {
  const RunPlan run = small_run();
  const plan::Plan& plan = run.ranks.front();
  TraceEvents events(plan, *run.spec, 9);
  std::string text = "{\"traceEvents\":[";
  double begin_s = 10;
  for (const int64_t step : {7, 8}) {
    const auto instance = measured(run, static_cast<int>(step) - 6);
    events.add(step, *instance, begin_s);
    while (events.has_more()) text += events.take(3);  // in any blocks
    begin_s = instance->end_s;
  }
  text.replace(text.rfind(','), 1, "]}");
  const test::TraceFacts facts = test::check_trace(config::Json::parse(text, "trace"));
  EXPECT_EQ(facts.problem, "");
  EXPECT_EQ(facts.ops, 2 * plan.program(plan::ProgramName::kStep).ops.size());
  EXPECT_EQ(facts.steps, (std::set<int64_t>{7, 8}));
  EXPECT_EQ(facts.processes, std::set<int64_t>{0});
  EXPECT_EQ(facts.by_category.at("step"), 2u);
  EXPECT_EQ(facts.by_category.at("stall"), 4u);
  EXPECT_NE(text.find("\"name\":\"read_state 2\""), text.npos) << "several are in flight";
  EXPECT_NE(text.find("\"name\":\"backward b1.mlp mb1\""), text.npos) << text.substr(0, 2000);
  EXPECT_NE(text.find("\"name\":\"waits for write\""), text.npos);
}

TEST(Trace, ChecksFindOverlapsAndMissingFields) {
  const auto problem = [](const std::string& events) {
    return test::check_trace(config::Json::parse("{\"traceEvents\":[" + events + "]}", "x"))
        .problem;
  };
  const std::string name =
      R"({"name":"thread_name","ph":"M","pid":0,"tid":1,"args":{"name":"a"}},)";
  const std::string first =
      R"({"name":"a","cat":"a","ph":"X","ts":1,"dur":2,"pid":0,"tid":1,"args":{"step":1}})";
  EXPECT_EQ(problem(name + first), "");
  EXPECT_NE(problem(first), "") << "no name of the thread";
  EXPECT_NE(problem(name + first + "," + first), "") << "overlaps";
  EXPECT_NE(problem(name + R"({"name":"a","ph":"X","ts":1,"pid":0,"tid":1})"), "");
}

TEST(Trace, ChosenStepsAreTheSecondAndLaterOnesWhereThereAreEnough) {
  const auto first = [](int64_t count, int64_t from, int64_t first_step, int64_t last_step) {
    return traced_steps(count, from, first_step, last_step).first;
  };
  EXPECT_EQ(first(3, 0, 1, 100), 2);
  EXPECT_EQ(first(3, 0, 1, 3), 1) << "a run of three";
  EXPECT_EQ(first(3, 0, 1, 2), 1);
  EXPECT_EQ(first(1, 0, 51, 100), 52) << "resumed";
  EXPECT_EQ(first(2, 60, 51, 100), 60);
  EXPECT_EQ(first(2, 10, 51, 100), 51) << "that step is over";
  EXPECT_TRUE(traced_steps(2, 0, 1, 9).contain(3));
  EXPECT_FALSE(traced_steps(2, 0, 1, 9).contain(4));
  EXPECT_FALSE(traced_steps(2, 0, 1, 9).contain(1));
}

TEST(Lanes, JoinedSpansKeepLongOnesAndAreFew) {
  using enum plan::OpKind;
  EXPECT_EQ(joined_spans(std::vector<LaneSpan>{{kForward, 0, 1}, {kForward, 1.01, 2}}, 0.1),
            (std::vector<LaneSpan>{{kForward, 0, 2}}));
  EXPECT_EQ(joined_spans(std::vector<LaneSpan>{{kForward, 0, 1}, {kForward, 1.5, 2}}, 0.1),
            (std::vector<LaneSpan>{{kForward, 0, 1}, {kForward, 1.5, 2}}));
  EXPECT_EQ(joined_spans(std::vector<LaneSpan>{{kForward, 0, 1}, {kBackward, 1, 2}}, 0.1),
            (std::vector<LaneSpan>{{kForward, 0, 1}, {kBackward, 1, 2}}));
  EXPECT_EQ(joined_spans(std::vector<LaneSpan>{{kNormPartial, 0, 0.01}, {kForward, 0.01, 2}}, 0.1),
            (std::vector<LaneSpan>{{kForward, 0, 2}}));
  EXPECT_EQ(joined_spans(std::vector<LaneSpan>{{kFetch, 0, 2}, {kConvert, 1, 3}}, 0.1),
            (std::vector<LaneSpan>{{kFetch, 0, 2}, {kConvert, 2, 3}}))
      << "transfers in flight together";
  std::vector<LaneSpan> many;
  for (int i = 0; i < 100'000; ++i) {
    many.push_back({i % 2 == 0 ? kForward : kBackward, i * 1e-5, (i + 1) * 1e-5});
  }
  EXPECT_LE(joined_spans(many, 1.0 / 500).size(), 1000u);
}

TEST(Lanes, PredictedOnesAreThoseOfOneSteadyStep) {
  const RunPlan run = small_run();
  const StepLanes step = predicted_lanes(run);
  const auto& compute = step.lanes[static_cast<size_t>(plan::Lane::kCompute)];
  EXPECT_EQ(compute.size(),
            run.ranks.front().program(plan::ProgramName::kStep).lanes.front().size());
  double first_s = 1;
  for (const auto& spans : step.lanes) {
    if (!spans.empty()) first_s = std::min(first_s, spans.front().begin_s);
  }
  EXPECT_EQ(first_s, 0);
  const double busy_s = std::accumulate(
      compute.begin(), compute.end(), 0.0,
      [](double sum, const LaneSpan& span) { return sum + span.end_s - span.begin_s; });
  const auto simulated = plan::simulate(run.ranks.front(), plan::ProgramName::kStep, run.rates);
  EXPECT_NEAR(busy_s, simulated.busy_s.front(), 1e-6 + 1e-3 * busy_s);
  const config::Json json = lanes_json(step);
  EXPECT_NE(json.find("lanes")->find("compute"), nullptr);
  EXPECT_EQ(json.find("lanes")->find("upload"), nullptr) << "a lane without ops";
}

}  // namespace
}  // namespace strata::train
