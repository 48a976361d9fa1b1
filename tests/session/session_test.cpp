// SPDX-License-Identifier: Apache-2.0
// The library as a caller outside of this repository sees it, through engine/engine.h alone: plans
// and refusals, whole runs, steps that a caller drives, units that it computes by itself; what a
// session says reaches its own sinks and nothing else.
#include "engine/engine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kT = 8;

class SessionTest : public testing::Test {
 protected:
  SessionTest()
      : directory_(std::string(STRATA_BINARY_DIR) + "/session-" + std::to_string(getpid())) {
    fs::remove_all(directory_);
    fs::create_directories(directory_ + "/nvme");
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
  }
  ~SessionTest() override {
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    fs::remove_all(directory_);
  }

  static std::string quoted(const std::string& text) { return "\"" + text + "\""; }

  // Options of a small model, with more of them behind.
  static std::string options(const std::string& more = "", const std::string& model = "") {
    return "{\"model\": " + quoted(model.empty() ? STRATA_MODELS "/tinyllama" : model) +
           ", \"machine\": " + quoted(STRATA_MACHINE) +
           ", \"sequence_length\": 8, \"threads\": 1, \"accumulate\": 2" + more + "}";
  }
  std::string run_options(const std::string& more = "") {
    std::ofstream file(directory_ + "/tokens.bin", std::ios::binary);
    for (int64_t i = 0; i <= 12 * kT; ++i) file << static_cast<char>(i * i % 59) << '\0';
    return options(", \"data\": " + quoted(directory_ + "/tokens.bin") + ", \"out\": " +
                   quoted(directory_ + "/run") + ", \"steps\": 6, \"lr\": 1e-2" + more);
  }

  Sinks sinks() {
    return {.log = [this](LogLevel, std::string_view line) { log_ += std::string(line) + "\n"; }};
  }

  const std::string directory_;
  std::string log_;
};

// [M, B, T] of a step.
struct Tokens {
  explicit Tokens(int step) : inputs(2 * kT), targets(2 * kT) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = static_cast<int32_t>((i * i + static_cast<size_t>(step)) % 59);
      targets[i] = (inputs[i] + 1) % 59;
    }
  }
  Batch batch() const { return {inputs, targets}; }
  std::vector<int32_t> inputs, targets;
};

ErrorCode code_of(const std::function<void()>& call, std::string* text = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (text != nullptr) *text = error.what();
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kIo;
}

TEST_F(SessionTest, APlanIsTextAndJsonAndCreatesNothing) {
  Session session = Session::open(run_options(), sinks());
  const PlanText plan = session.plan();
  EXPECT_TRUE(plan.fits);
  EXPECT_NE(plan.text.find("host "), std::string::npos) << plan.text;
  EXPECT_NE(plan.json.find("\"predicted"), std::string::npos) << plan.json;
  EXPECT_FALSE(fs::exists(directory_ + "/run"));
}

TEST_F(SessionTest, ABudgetThatIsTooSmallIsARefusalThatNamesWhatFits) {
  Session session = Session::open(options(", \"host_memory\": \"1MiB\""), sinks());
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

TEST_F(SessionTest, WhatAHandlerThrowsReachesTheCallerFromAnyNumberOfRanks) {
  for (const char* ranks : {"1", "2"}) {
    Session session =
        Session::open(run_options(std::string(", \"force\": true, \"ranks\": ") + ranks), sinks());
    EXPECT_THROW(session.train({.step = [](const StepReport&) { throw 7; }}), int);
  }
}

TEST_F(SessionTest, StepsOfACallerGoOnExactlyFromACheckpoint) {
  std::vector<StepResult> results;
  Session session = Session::open(options(), sinks());
  session.load();
  std::string saved;
  for (int step = 1; step <= 4; ++step) {
    results.push_back(session.step(Tokens(step).batch(), 1e-2));
    EXPECT_EQ(results.back().step, step);
    if (step == 2) saved = session.save(directory_ + "/checkpoints");
  }
  EXPECT_LT(results[3].loss, results[0].loss);
  session.close();
  Session other = Session::open(options(), sinks());
  other.load(saved);
  for (int step = 3; step <= 4; ++step) {
    const StepResult result = other.step(Tokens(step).batch(), 1e-2);
    EXPECT_EQ(result.step, step);
    EXPECT_EQ(result.loss, results[static_cast<size_t>(step) - 1].loss);
    EXPECT_EQ(result.grad_norm, results[static_cast<size_t>(step) - 1].grad_norm);
  }
}

TEST_F(SessionTest, EvaluationBetweenStepsChangesNothing) {
  Session plain = Session::open(options(", \"clip\": 1"), sinks());
  Session watched = Session::open(options(", \"clip\": 1"), sinks());
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

TEST_F(SessionTest, AfterALoadThatFailedNothingIsLoaded) {
  Session session = Session::open(options(), sinks());
  session.load();
  const double loss = session.evaluate(Tokens(1).batch());
  const std::string saved = session.save(directory_ + "/checkpoints");
  EXPECT_EQ(code_of([&] { session.load(directory_ + "/missing"); }), ErrorCode::kConfig);
  EXPECT_EQ(code_of([&] { session.evaluate(Tokens(1).batch()); }), ErrorCode::kUsage);
  const std::string damaged = directory_ + "/damaged";
  fs::copy(saved, damaged, fs::copy_options::recursive);
  for (const auto& file : fs::directory_iterator(damaged)) {
    if (file.path().filename() == "manifest.json") continue;
    std::fstream(file.path(), std::ios::binary | std::ios::in | std::ios::out).write("\x5a", 1);
  }
  EXPECT_EQ(code_of([&] { session.load(damaged); }), ErrorCode::kCorrupt);
  EXPECT_EQ(code_of([&] { session.evaluate(Tokens(1).batch()); }), ErrorCode::kUsage);
  session.load(saved);
  EXPECT_EQ(session.evaluate(Tokens(1).batch()), loss);
}

TEST_F(SessionTest, AnExportedModelIsTheOneThatWasTrained) {
  Session session = Session::open(options(), sinks());
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

  Session exported = Session::open(options("", directory_ + "/model"), sinks());
  exported.load();
  EXPECT_NEAR(exported.evaluate(Tokens(1).batch()), loss, 1e-2);  // masters are rounded to bf16
  EXPECT_EQ(exported.logits(context).size(), logits.size());
}

TEST_F(SessionTest, BatchesOfOtherSizesAndIdsAreRefused) {
  Session session = Session::open(options(), sinks());
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

TEST_F(SessionTest, ContextsWithoutTokensOrWithOtherIdsAreRefused) {
  Session session = Session::open(options(), sinks());
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

TEST_F(SessionTest, CallsOfAnotherKindAreErrors) {
  Session run = Session::open(run_options(), sinks());
  EXPECT_EQ(code_of([&] { run.load(); }), ErrorCode::kUsage);
  Session steps = Session::open(options(), sinks());
  EXPECT_EQ(code_of([&] { steps.train(); }), ErrorCode::kUsage);
  EXPECT_EQ(code_of([&] { steps.begin(1e-3); }), ErrorCode::kUsage);
  Session units = Session::declare({{"one", {{"weight", {4, 4}}}}}, {}, sinks());
  EXPECT_EQ(code_of([&] { units.step({}, 1e-3); }), ErrorCode::kUsage);
  EXPECT_EQ(code_of([&] { units.load(); }), ErrorCode::kUsage);
}

TEST_F(SessionTest, CallsOfASessionThatWasMovedFromAreErrors) {
  Session session = Session::open(options(), sinks());
  const Session other = std::move(session);
  const auto expect_usage = [](const std::function<void()>& call) {
    EXPECT_EQ(code_of(call), ErrorCode::kUsage);
  };
  expect_usage([&] { session.plan(); });
  expect_usage([&] { session.train(); });
  expect_usage([&] { session.load(); });
  expect_usage([&] { session.step(Tokens(1).batch(), 1e-2); });
  expect_usage([&] { session.release(); });
  expect_usage([&] { session.save(directory_); });
  session.close();
}

// Two units of one tensor each; the gradient is the weight, so that it shrinks. Their weights,
// gradients and moments take 4.8 MB.
class DeclaredUnits : public SessionTest {
 protected:
  static constexpr int64_t kSize = 150016;  // a multiple of 64

  Session declare(const UnitOptions& unit_options) {
    return Session::declare({{"first", {{"a", {2, kSize / 2}}}}, {"second", {{"b", {kSize}}}}},
                            unit_options, sinks());
  }
  static void fill(int unit, int tensor, int64_t first, std::span<float> values) {
    EXPECT_EQ(tensor, 0);
    EXPECT_LE(first + std::ssize(values), kSize);
    std::iota(values.begin(), values.end(), static_cast<float>(first + 1000 * unit));
  }
  // The gradients' norm, and the first weights that the step saw.
  static std::pair<double, float> step(Session& session) {
    session.begin(0.5);
    float seen = 0;
    for (int unit = 0; unit < 2; ++unit) {
      seen += static_cast<const float*>(session.acquire(unit, UnitPass::kForward).weights)[1];
      session.release();
    }
    for (int unit = 2; unit-- > 0;) {
      const UnitUse use = session.acquire(unit, UnitPass::kBackward);
      EXPECT_TRUE(use.overwrites);
      std::copy_n(static_cast<const float*>(use.weights), kSize, use.gradient);
      session.release();
    }
    return {session.end().grad_norm, seen};
  }
};

TEST_F(DeclaredUnits, AreUpdatedAndGoOnExactlyFromACheckpoint) {
  Session session = declare({.clip = 1.0});
  EXPECT_TRUE(session.plan().fits);
  session.load(fill);
  const auto first = step(session);
  EXPECT_EQ(first.second, 1.0f + 1001.0f);
  const std::string saved = session.save(directory_ + "/checkpoints");
  const auto second = step(session);
  EXPECT_LT(second.first, first.first);
  const auto third = step(session);

  Session other = declare({.memory_bytes = 17 << 18, .nvme = {directory_ + "/nvme"}, .clip = 1.0});
  EXPECT_NE(other.plan().text.find("\nnvme "), std::string::npos) << other.plan().text;
  other.load(saved);
  EXPECT_EQ(step(other), second);
  EXPECT_EQ(step(other), third);
}

TEST_F(DeclaredUnits, HaveWeightsOf16BitsWhereThatIsAsked) {
  Session session = declare({.bf16 = true});
  session.load(fill);
  session.begin(0.1);
  const auto* weights =
      static_cast<const uint16_t*>(session.acquire(0, UnitPass::kForward).weights);
  EXPECT_EQ(weights[1], 0x3f80);  // 1.0
  EXPECT_EQ(weights[2], 0x4000);  // 2.0
}

TEST_F(DeclaredUnits, APassOutOfTurnNamesBoth) {
  Session session = declare({});
  session.load(fill);
  session.begin(0.1);
  std::string text;
  EXPECT_EQ(code_of([&] { session.acquire(1, UnitPass::kForward); }, &text), ErrorCode::kConfig);
  EXPECT_NE(text.find("forward of second"), std::string::npos) << text;
  EXPECT_NE(text.find("forward of first"), std::string::npos) << text;
}

TEST_F(DeclaredUnits, OptionsOutOfRangeAreRefused) {
  for (const UnitOptions& wrong :
       {UnitOptions{.memory_bytes = -1}, UnitOptions{.micro_batches = 0},
        UnitOptions{.micro_batches = (1 << 20) + 1}, UnitOptions{.threads = 4097},
        UnitOptions{.beta1 = 1}, UnitOptions{.beta2 = -0.1}, UnitOptions{.beta2 = NAN},
        UnitOptions{.eps = 0}, UnitOptions{.weight_decay = -1}, UnitOptions{.clip = INFINITY}}) {
    EXPECT_EQ(code_of([&] { declare(wrong); }), ErrorCode::kConfig);
  }
}

TEST_F(DeclaredUnits, ShapesThatCannotBeAreRefusedByName) {
  const int64_t large = int64_t{1} << 32;
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{4, 0}, {-4}, {large, large}, {large, large, 0}}) {
    std::string text;
    EXPECT_EQ(code_of(
                  [&] {
                    Session::declare({{"layer", {{"weight", shape}}}}, {});
                  },
                  &text),
              ErrorCode::kConfig);
    EXPECT_NE(text.find("layer: weight: "), std::string::npos) << text;
  }
}

TEST_F(DeclaredUnits, CallsOutOfTurnChangeNothing) {
  Session plain = declare({});
  Session session = declare({});
  plain.load(fill);
  session.load(fill);
  const auto expect_usage = [](const std::function<void()>& call) {
    EXPECT_EQ(code_of(call), ErrorCode::kUsage);
  };
  expect_usage([&] { session.release(); });
  expect_usage([&] { session.acquire(0, UnitPass::kForward); });
  expect_usage([&] { session.end(); });
  session.begin(0.5);
  expect_usage([&] { session.begin(0.5); });
  expect_usage([&] { session.release(); });
  session.acquire(0, UnitPass::kForward);
  expect_usage([&] { session.end(); });
  session.release();
  expect_usage([&] { session.release(); });
  expect_usage([&] { session.save(directory_ + "/checkpoints"); });
  EXPECT_FALSE(fs::exists(directory_ + "/checkpoints"));
  session.acquire(1, UnitPass::kForward);
  session.release();
  for (int unit = 2; unit-- > 0;) {
    expect_usage([&] { session.end(); });
    const UnitUse use = session.acquire(unit, UnitPass::kBackward);
    std::copy_n(static_cast<const float*>(use.weights), kSize, use.gradient);
    session.release();
  }
  expect_usage([&] { session.acquire(0, UnitPass::kForward); });
  EXPECT_EQ(session.end().grad_norm, step(plain).first);
  EXPECT_EQ(step(session), step(plain));
}

TEST_F(SessionTest, EachSessionHearsItsOwnLines) {
  std::string other_log;
  const Sinks other_sinks = {
      .log = [&](LogLevel, std::string_view line) { other_log += std::string(line) + "\n"; }};
  Session one = Session::open(options(), sinks());
  Session other = Session::open(options(), other_sinks);
  EXPECT_TRUE(one.plan().fits);
  EXPECT_NE(log_.find("plan: for one of "), std::string::npos) << log_;
  EXPECT_EQ(other_log, "");
  EXPECT_TRUE(other.plan().fits);
  EXPECT_EQ(other_log, log_);
}

}  // namespace
}  // namespace strata
