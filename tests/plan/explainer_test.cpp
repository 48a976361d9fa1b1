// SPDX-License-Identifier: Apache-2.0
// The text of a small plan is the golden one, folding over micro-batches loses no op, and the
// summary adds up.
#include "engine/plan/explainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/plan/tiny_plans.h"

namespace strata::plan {
namespace {

std::string golden(const std::string& name) {
  std::ifstream file(std::string(STRATA_TEST_DATA) + "/plan/" + name);
  EXPECT_TRUE(file.is_open()) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string step_of(const tiny::Shape& shape) {
  const tiny::Tiny tiny = tiny::make(shape);
  return explain(tiny.plan, tiny.spec, ProgramName::kStep);
}

TEST(Explainer, AStepWithEverythingOnNvme) {
  EXPECT_EQ(step_of({}), golden("step_nvme.txt"));
}

TEST(Explainer, ATiedStepOnADiscreteDevice) {
  EXPECT_EQ(step_of({.discrete = true, .tied = true, .micro_batches = 3}),
            golden("step_discrete.txt"));
}

TEST(Explainer, MicroBatchesDoNotAddLines) {
  const auto lines = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(lines(step_of({.micro_batches = 2})), lines(step_of({.micro_batches = 9})));
  EXPECT_NE(step_of({.micro_batches = 9}).find("C1-9         forward   embed        mb0-8 hi+u"),
            std::string::npos);
}

TEST(Explainer, AnOpThatWaitsForSomethingElseHasALineOfItsOwn) {
  tiny::Tiny tiny = tiny::make({});
  Program& step = tiny.plan.programs[static_cast<size_t>(ProgramName::kStep)];
  const std::string before = explain(tiny.plan, tiny.spec, ProgramName::kStep);
  for (Op& op : step.ops) {
    if (op.kind != OpKind::kForward || op.segment != 0 || op.micro_batch != 1) continue;
    op.wait_begin = static_cast<uint32_t>(step.waits.size());
    step.waits.push_back({Lane::kReadState, 1});
    op.wait_end = static_cast<uint32_t>(step.waits.size());
  }
  const std::string after = explain(tiny.plan, tiny.spec, ProgramName::kStep);
  EXPECT_EQ(before.find("\nC2 "), std::string::npos);
  EXPECT_NE(after.find("\nC2           forward   embed        mb1 hi+u           w1 t > x0 k"),
            std::string::npos);
}

TEST(Explainer, AnEmptyProgramHasNoLines) {
  const tiny::Tiny tiny = tiny::make({.mode = OptimizerMode::kInBackward});
  EXPECT_EQ(explain(tiny.plan, tiny.spec, ProgramName::kDrain), "slots:\ndrain 0 ops 0 lines\n");
}

TEST(Explainer, TheSummaryAddsLinesOfOnePurpose) {
  Plan plan;
  plan.arenas.bytes = {0, 300, 50, 0};
  plan.arenas.budget = {0, 1000, 60, 0};
  plan.arenas.lines = {{Arena::kHost, "weights", 0, 100},
                       {Arena::kHost, "state", 100, 50},
                       {Arena::kHost, "weights", 200, 100},
                       {Arena::kNvme, "state", 0, 50}};
  EXPECT_EQ(summary(plan),
            "host     weights                                         200\n"
            "host     state                                            50\n"
            "host     between slots                                    50\n"
            "host     used                                            300 of 1000\n"
            "nvme     state                                            50\n"
            "nvme     used                                             50 of 60\n");
}

}  // namespace
}  // namespace strata::plan
