// SPDX-License-Identifier: Apache-2.0
// Whole runs through the library: what they leave, how they are stopped and continued, and what a
// handler throws.
#include "tests/session/session_fixture.h"

namespace strata::test {
namespace {

TEST_F(SessionTest, ARunTrainsAndLeavesCheckpointAndModel) {
  Session session = Session::open(run_options(", \"eval_every\": 3"), sinks());
  std::vector<double> losses;
  int evaluations = 0;
  const TrainReport report =
      session.train({.step = [&](const StepReport& step) { losses.push_back(step.loss); },
                     .evaluated = [&](int64_t, double) { ++evaluations; }});
  ASSERT_EQ(losses.size(), 6u);
  EXPECT_EQ(evaluations, 2);
  EXPECT_EQ(report.first_loss, losses.front());
  EXPECT_EQ(report.last_loss, losses.back());
  EXPECT_LT(report.last_loss, report.first_loss);
  EXPECT_NE(report.state_hash, 0u);
  EXPECT_TRUE(fs::exists(report.checkpoint + "/manifest.json"));
  EXPECT_TRUE(fs::exists(report.model + "/model.safetensors"));
  EXPECT_EQ(code_of([&] { session.train(); }), ErrorCode::kUsage);
  EXPECT_EQ(code_of([&] { session.plan(); }), ErrorCode::kUsage);
}

TEST_F(SessionTest, ARunThatIsStoppedLeavesACheckpointAndNoModel) {
  Session session = Session::open(run_options(), sinks());
  std::atomic<bool> stop = false;
  const TrainReport report =
      session.train({.step = [&](const StepReport&) { stop = true; }, .stop = &stop});
  EXPECT_TRUE(report.stopped);
  EXPECT_LT(report.last_step, 6);
  EXPECT_TRUE(fs::exists(report.checkpoint + "/manifest.json"));
  EXPECT_EQ(report.model, "");
  EXPECT_FALSE(fs::exists(directory_ + "/run/model"));
}

TEST_F(SessionTest, ARunThatIsContinuedHasItsOptionsAndWhatIsGivenChangesThem) {
  const auto losses_of = [](Session session, int64_t steps, double* lr = nullptr) {
    std::vector<double> losses;
    std::atomic<bool> stop = false;
    session.train({.step =
                       [&](const StepReport& step) {
                         losses.push_back(step.loss);
                         if (lr != nullptr) *lr = step.lr;
                         stop = step.step == steps;
                       },
                   .stop = &stop});
    return losses;
  };
  const std::string more = ", \"schedule\": \"constant\", \"decay_all\": true";
  const std::vector<double> whole = losses_of(Session::open(run_options(more), sinks()), 0);
  ASSERT_EQ(whole.size(), 6u);
  fs::remove_all(directory_ + "/run");
  const size_t begun = losses_of(Session::open(run_options(more), sinks()), 2).size();
  ASSERT_LT(begun, 4u);

  const std::string out = "{\"out\": " + quoted(directory_ + "/run") + ", \"resume\": true";
  double lr = 0;
  const std::vector<double> middle =
      losses_of(Session::open(out + ", \"steps\": 4}", sinks()), 0, &lr);
  EXPECT_EQ(middle,
            std::vector<double>(whole.begin() + static_cast<int64_t>(begun), whole.begin() + 4));
  EXPECT_EQ(lr, 1e-2);
  // A value that is the default of its option changes the run's like any other.
  const double of_default = 5e-5;
  losses_of(Session::open(out + ", \"steps\": 6, \"lr\": 5e-5, \"decay_all\": false}", sinks()), 0,
            &lr);
  EXPECT_EQ(lr, of_default);
  EXPECT_NE(log_.find("--decay-all off (checkpoint: on)"), std::string::npos) << log_;
}

TEST_F(SessionTest, ARunOnADeviceIsContinuedWithoutOne) {
  const uint64_t expected = Session::open(run_options(), sinks()).train().state_hash;
  fs::remove_all(directory_ + "/run");
  std::atomic<bool> stop = true;
  const TrainReport begun =
      Session::open(run_options(", \"device\": \"emulated\", \"device_memory\": \"12MiB\""),
                    sinks())
          .train({.stop = &stop});
  ASSERT_TRUE(begun.stopped);
  const std::string out = "{\"out\": " + quoted(directory_ + "/run") + ", \"resume\": true";
  const TrainReport report = Session::open(out + ", \"device\": \"cpu\"}", sinks()).train();
  EXPECT_EQ(report.first_step, begun.last_step + 1);
  EXPECT_EQ(report.state_hash, expected);
}

TEST_F(SessionTest, WhatAHandlerThrowsReachesTheCallerFromAnyNumberOfRanks) {
  for (const char* ranks : {"1", "2"}) {
    Session session =
        Session::open(run_options(std::string(", \"force\": true, \"ranks\": ") + ranks), sinks());
    EXPECT_THROW(session.train({.step = [](const StepReport&) { throw 7; }}), int);
  }
}

}  // namespace
}  // namespace strata::test
