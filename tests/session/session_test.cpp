// SPDX-License-Identifier: Apache-2.0
// The library as a caller outside of this repository sees it, through engine/engine.h alone: plans
// and refusals, options, calls that a session does not have, and what it says to its own sinks.
#include <cmath>

#include "tests/session/session_fixture.h"

namespace strata::test {
namespace {

TEST_F(SessionTest, APlanIsTextAndJsonAndCreatesNothing) {
  Session session = Session::open(run_options(), sinks());
  const PlanText plan = session.plan();
  EXPECT_TRUE(plan.fits);
  EXPECT_NE(plan.text.find("host "), std::string::npos) << plan.text;
  EXPECT_NE(plan.json.find("\"predicted"), std::string::npos) << plan.json;
  EXPECT_FALSE(fs::exists(directory_ + "/run"));
}

TEST_F(SessionTest, ABudgetThatIsTooSmallIsARefusalThatNamesWhatFits) {
  Session session = open(options(", \"host_memory\": \"1MiB\""));
  const PlanText plan = session.plan();
  EXPECT_FALSE(plan.fits);
  EXPECT_NE(plan.text.find("the least that fits is --host-memory "), std::string::npos)
      << plan.text;
  EXPECT_NE(plan.json.find("\"refused\""), std::string::npos) << plan.json;
  EXPECT_EQ(code_of([&] { session.load(); }), ErrorCode::kDoesNotFit);
}

TEST_F(SessionTest, MistakesInOptionsAreReportedTogether) {
  std::string text;
  EXPECT_EQ(code_of([&] { Session::open(options(", \"lr\": -1, \"nonsense\": 2")); }, &text),
            ErrorCode::kUsage);
  EXPECT_NE(text.find("lr"), std::string::npos) << text;
  EXPECT_NE(text.find("nonsense"), std::string::npos) << text;
}

TEST_F(SessionTest, AGivenDeadlineReplacesThatOfTheSinks) {
  Sinks wrong = sinks();
  for (const double seconds : {0.0, -1.0, std::nan("")}) {
    wrong.hang_after_s = seconds;
    EXPECT_EQ(code_of([&] { Session::open(options(), wrong); }), ErrorCode::kConfig);
    EXPECT_EQ(code_of([&] {
                Session::declare({{"one", {{"weight", {4}}}}}, {}, wrong);
              }),
              ErrorCode::kConfig);
  }
  Session::open(options(", \"io_deadline\": 60"), wrong);
}

TEST_F(SessionTest, CallsOfAnotherKindAreErrors) {
  Session run = Session::open(run_options(), sinks());
  EXPECT_EQ(code_of([&] { run.load(); }), ErrorCode::kUsage);
  Session steps = open(options());
  EXPECT_EQ(code_of([&] { steps.train(); }), ErrorCode::kUsage);
  EXPECT_EQ(code_of([&] { steps.begin(1e-3); }), ErrorCode::kUsage);
  Session units = Session::declare({{"one", {{"weight", {4, 4}}}}}, {}, sinks());
  EXPECT_EQ(code_of([&] { units.step({}, 1e-3); }), ErrorCode::kUsage);
  EXPECT_EQ(code_of([&] { units.load(); }), ErrorCode::kUsage);
}

TEST_F(SessionTest, CallsOfASessionThatWasMovedFromAreErrors) {
  Session session = open(options());
  const Session other = std::move(session);
  const auto expect_usage = [](const std::function<void()>& call) {
    EXPECT_EQ(code_of(call), ErrorCode::kUsage);
  };
  expect_usage([&] { session.plan(); });  // NOLINT(bugprone-use-after-move)
  expect_usage([&] { session.train(); });
  expect_usage([&] { session.load(); });
  expect_usage([&] { session.step(Tokens(1).batch(), 1e-2); });
  expect_usage([&] { session.release(); });
  expect_usage([&] { session.save(directory_); });
  session.close();
}

TEST_F(SessionTest, ABudgetBeyondTheMemoryOfAProfileIsSaid) {
  Session session = Session::open(options(of_machine() + ", \"host_memory\": \"1TiB\""), sinks());
  EXPECT_TRUE(session.plan().fits);
  EXPECT_NE(log_.find("host-memory: 1 TiB is more than small-2core has, 23 GiB; the plan is for a "
                      "machine with so much"),
            std::string::npos)
      << log_;
}

TEST_F(SessionTest, EachSessionHearsItsOwnLines) {
  std::string other_log;
  const Sinks other_sinks = {
      .log = [&](LogLevel, std::string_view line) { other_log += std::string(line) + "\n"; }};
  Session one = Session::open(options(of_machine()), sinks());
  Session other = Session::open(options(of_machine()), other_sinks);
  EXPECT_TRUE(one.plan().fits);
  EXPECT_NE(log_.find("planning for "), std::string::npos) << log_;
  EXPECT_EQ(other_log, "");
  EXPECT_TRUE(other.plan().fits);
  EXPECT_EQ(other_log, log_);
}

}  // namespace
}  // namespace strata::test
