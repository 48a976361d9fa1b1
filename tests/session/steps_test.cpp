// SPDX-License-Identifier: Apache-2.0
// Steps that a caller of the library drives: checkpoints, evaluation, export, and inputs that are
// refused.
#include <cmath>

#include "tests/session/session_fixture.h"

namespace strata::test {
namespace {

TEST_F(SessionTest, StepsOfACallerGoOnExactlyFromACheckpoint) {
  std::vector<StepResult> results;
  Session session = open(options());
  session.load();
  std::string saved;
  for (int step = 1; step <= 4; ++step) {
    results.push_back(session.step(Tokens(step).batch(), 1e-2));
    EXPECT_EQ(results.back().step, step);
    if (step == 2) saved = session.save(directory_ + "/checkpoints");
  }
  EXPECT_LT(results[3].loss, results[0].loss);
  session.close();
  Session other = open(options());
  other.load(saved);
  for (int step = 3; step <= 4; ++step) {
    const StepResult result = other.step(Tokens(step).batch(), 1e-2);
    EXPECT_EQ(result.step, step);
    EXPECT_EQ(result.loss, results[static_cast<size_t>(step) - 1].loss);
    EXPECT_EQ(result.grad_norm, results[static_cast<size_t>(step) - 1].grad_norm);
  }
}

// A run whose steps a caller continues from its fourth: what belongs to the run stays as it is.
TEST_F(SessionTest, StepsFromACheckpointOfARunAreSavedBesideTheRun) {
  const std::string run = directory_ + "/run";
  const std::string last =
      Session::open(run_options(", \"checkpoint_every\": 2"), sinks()).train().checkpoint;
  const std::string own = run + "/checkpoints/step-000004";
  const std::string copied = directory_ + "/copied/step-000004";
  fs::create_directory(directory_ + "/copied");
  fs::copy(own, copied, fs::copy_options::recursive);
  fs::remove_all(last);
  Session session = open(options());
  session.load(own);
  const auto expect_refusal = [&](const std::string& directory) {
    std::string text;
    EXPECT_EQ(code_of([&] { session.save(directory); }, &text), ErrorCode::kConfig) << directory;
    EXPECT_NE(text.find("choose another directory"), std::string::npos) << text;
  };
  expect_refusal(run + "/checkpoints/");
  expect_refusal(directory_ + "/copied");
  EXPECT_EQ(session.step(Tokens(1).batch(), 1e-2).step, 5);
  fs::create_symlink(run + "/checkpoints", directory_ + "/link");
  expect_refusal(directory_ + "/link");
  expect_refusal(run + "/model");

  const std::string saved = session.save(directory_ + "/copied");
  EXPECT_TRUE(saved.ends_with("/step-000005")) << saved;
  EXPECT_EQ(session.save(directory_ + "/copied"), saved);
  session.close();
  session.load(copied);
  const TrainReport report =
      Session::open("{\"resume\": true, \"out\": " + quoted(run) + "}", sinks()).train();
  EXPECT_EQ(report.first_step, 5);
}

TEST_F(SessionTest, EvaluationBetweenStepsChangesNothing) {
  Session plain = open(options(", \"clip\": 1"));
  Session watched = open(options(", \"clip\": 1"));
  plain.load();
  watched.load();
  const std::vector<int32_t> context = {1, 2, 3};
  double before = watched.evaluate(Tokens(0).batch());
  for (int step = 1; step <= 3; ++step) {
    const StepResult expected = plain.step(Tokens(step).batch(), 1e-2);
    const StepResult result = watched.step(Tokens(step).batch(), 1e-2);
    EXPECT_EQ(result.loss, expected.loss);
    EXPECT_EQ(result.grad_norm, expected.grad_norm);
    const std::vector<float> logits = watched.logits(context);
    const double loss = watched.evaluate(Tokens(0).batch());
    EXPECT_NE(loss, before);  // the step's update is in it
    before = loss;
    EXPECT_EQ(watched.logits(context), logits);
    EXPECT_EQ(watched.evaluate(Tokens(0).batch()), loss);
  }
}

TEST_F(SessionTest, APlanForAnotherMachineCannotBeLoaded) {
  Session session = Session::open(options(of_machine()), sinks());
  EXPECT_TRUE(session.plan().fits);
  std::string text;
  EXPECT_EQ(code_of([&] { session.load(); }, &text), ErrorCode::kConfig);
  EXPECT_NE(text.find("machine: " STRATA_MACHINE ": "), std::string::npos) << text;
  EXPECT_EQ(code_of([&] { session.step(Tokens(1).batch(), 1e-2); }), ErrorCode::kUsage);
}

TEST_F(SessionTest, ACheckpointThatCannotBeUsedLeavesWhatIsLoaded) {
  Session session = open(options());
  session.load();
  const double loss = session.evaluate(Tokens(1).batch());
  const std::string saved = session.save(directory_ + "/checkpoints");
  EXPECT_EQ(code_of([&] { session.load(directory_ + "/missing"); }), ErrorCode::kConfig);
  EXPECT_EQ(session.evaluate(Tokens(1).batch()), loss);
  const std::string damaged = directory_ + "/damaged";
  fs::copy(saved, damaged, fs::copy_options::recursive);
  for (const auto& file : fs::directory_iterator(damaged)) {
    if (file.path().filename() == "manifest.json") continue;
    std::fstream(file.path(), std::ios::binary | std::ios::in | std::ios::out).write("\x5a", 1);
  }
  EXPECT_EQ(code_of([&] { session.load(damaged); }), ErrorCode::kCorrupt);
  EXPECT_EQ(session.evaluate(Tokens(1).batch()), loss);
  session.close();
  Session fresh = open(options());
  EXPECT_EQ(code_of([&] { fresh.load(damaged); }), ErrorCode::kCorrupt);
  EXPECT_EQ(code_of([&] { fresh.evaluate(Tokens(1).batch()); }), ErrorCode::kUsage);
  fresh.load(saved);
  EXPECT_EQ(fresh.evaluate(Tokens(1).batch()), loss);
}

TEST_F(SessionTest, AnExportedModelIsTheOneThatWasTrained) {
  Session session = open(options());
  session.load();
  const double before = session.evaluate(Tokens(1).batch());
  for (int step = 1; step <= 3; ++step) session.step(Tokens(1).batch(), 1e-2);
  session.export_model(directory_ + "/model");
  const double loss = session.evaluate(Tokens(1).batch());
  EXPECT_LT(loss, before);
  const std::vector<int32_t> context = {1, 2, 3};
  const std::vector<float> logits = session.logits(context);
  session.close();
  EXPECT_EQ(code_of([&] { session.logits(context); }), ErrorCode::kUsage);

  Session exported = open(options("", directory_ + "/model"));
  exported.load();
  EXPECT_NEAR(exported.evaluate(Tokens(1).batch()), loss, 1e-2);  // masters are rounded to bf16
  EXPECT_EQ(exported.logits(context).size(), logits.size());
}

TEST_F(SessionTest, BatchesOfOtherSizesAndIdsAreRefused) {
  Session session = open(options());
  EXPECT_EQ(code_of([&] { session.step(Tokens(1).batch(), 1e-2); }), ErrorCode::kUsage);
  session.load();
  Tokens tokens(1);
  tokens.targets.pop_back();
  EXPECT_EQ(code_of([&] { session.step(tokens.batch(), 1e-2); }), ErrorCode::kConfig);
  tokens.targets.push_back(1 << 20);
  EXPECT_EQ(code_of([&] { session.step(tokens.batch(), 1e-2); }), ErrorCode::kConfig);
  tokens.targets.assign(tokens.inputs.size(), -1);
  EXPECT_EQ(code_of([&] { session.step(tokens.batch(), 1e-2); }), ErrorCode::kConfig);
  EXPECT_EQ(session.step(Tokens(1).batch(), 1e-2).step, 1);
}

TEST_F(SessionTest, LearningRatesThatAreNoneAreRefusedAndChangeNothing) {
  Session session = open(options());
  Session plain = open(options());
  session.load();
  plain.load();
  for (const double lr : {-1e-3, std::nan(""), HUGE_VAL}) {
    EXPECT_EQ(code_of([&] { session.step(Tokens(1).batch(), lr); }), ErrorCode::kConfig);
  }
  for (int step = 1; step <= 2; ++step) {
    EXPECT_EQ(session.step(Tokens(step).batch(), 1e-2).loss,
              plain.step(Tokens(step).batch(), 1e-2).loss);
  }
}

TEST_F(SessionTest, AfterAStepThatFailedALoadBringsTheStateAgain) {
  Session session = open(options());
  session.load();
  session.step(Tokens(1).batch(), 1e-2);
  const std::string saved = session.save(directory_ + "/checkpoints");
  const double loss = session.step(Tokens(2).batch(), 1e38).loss;
  EXPECT_EQ(code_of([&] { session.step(Tokens(3).batch(), 1e-2); }), ErrorCode::kNumeric);
  const auto expect_lost = [&](const std::function<void()>& call) {
    std::string text;
    EXPECT_EQ(code_of(call, &text), ErrorCode::kUsage);
    EXPECT_NE(text.find("the state is lost (load a checkpoint or initial weights)"),
              std::string::npos)
        << text;
  };
  expect_lost([&] { session.step(Tokens(3).batch(), 1e-2); });
  expect_lost([&] { session.evaluate(Tokens(3).batch()); });
  expect_lost([&] { session.logits(std::vector<int32_t>{1}); });
  expect_lost([&] { session.save(directory_ + "/checkpoints"); });
  expect_lost([&] { session.export_model(directory_ + "/model"); });
  EXPECT_TRUE(session.plan().fits);
  session.load(saved);
  EXPECT_EQ(session.step(Tokens(2).batch(), 1e-2).loss, loss);
}

TEST_F(SessionTest, ContextsWithoutTokensOrWithOtherIdsAreRefused) {
  Session session = open(options());
  session.load();
  std::vector<int32_t> context;
  EXPECT_EQ(code_of([&] { session.logits(context); }), ErrorCode::kConfig);
  context = {1, -1};
  EXPECT_EQ(code_of([&] { session.logits(context); }), ErrorCode::kConfig);
  context = {1, static_cast<int32_t>(session.logits(std::vector<int32_t>{1}).size())};
  std::string text;
  EXPECT_EQ(code_of([&] { session.logits(context); }, &text), ErrorCode::kConfig);
  EXPECT_NE(text.find(std::to_string(context[1])), std::string::npos) << text;
}

}  // namespace
}  // namespace strata::test
