// SPDX-License-Identifier: Apache-2.0
// A caller that computes by itself: its plans verify, its state has the same bits wherever it lies,
// it may take its time, and a pass out of turn is an error that names both.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "engine/base/error.h"
#include "engine/exec/executor.h"
#include "engine/model/external.h"
#include "engine/plan/builder.h"
#include "engine/plan/verifier.h"
#include "tests/support/random_runs.h"
#include "tests/support/random_state.h"
#include "tests/support/temporary_directory.h"

namespace strata {
namespace {

class External : public ::testing::Test {
 protected:
  void SetUp() override {
    input_.spec = &spec_;
    input_.nvme_budget = int64_t{1} << 30;
    input_.micro_batches = 2;
  }

  exec::ExecutorOptions options() const {
    exec::ExecutorOptions options;
    options.backend = &kernels::ref_backend();
    options.external = true;
    options.volume.directories = {directory_.path()};
    options.deadline_s = 60;
    return options;
  }

  // A gradient that depends on the weights, so that a stale or torn weight changes the result.
  static void add_gradient(const exec::SegmentUse& use, int64_t numel, int micro_batch) {
    const auto* weights = static_cast<const float*>(use.weights);
    for (int64_t i = 0; i < numel; ++i) {
      const float own = 0.1f * weights[i] + static_cast<float>((i + micro_batch) % 7) - 3.0f;
      use.gradient[i] = use.gradient_first ? own : use.gradient[i] + own;
    }
  }

  uint64_t run(
      const plan::Placement& placement, const exec::ExecutorOptions& options,
      const std::function<void()>& compute = [] {}) {
    const plan::Plan plan = plan::build_plan(input_, placement);
    const plan::VerifyReport report = plan::verify(plan, spec_);
    EXPECT_TRUE(report.ok()) << report.violations.front().text;
    exec::Executor executor(plan, spec_, options);
    test::RandomSource source(spec_, 3);
    exec::Instance load;
    load.program = plan::ProgramName::kLoad;
    load.source = &source;
    executor.run(load);
    const int count = static_cast<int>(spec_.segments.size());
    for (int64_t step = 1; step <= 4; ++step) {
      exec::Instance instance;
      instance.settings = {.lr = 1e-2, .weight_decay = 0.1};
      instance.settings.clip = input_.mode == plan::OptimizerMode::kDeferred ? 1.0 : 0.0;
      executor.submit(instance);
      for (int m = 0; m < input_.micro_batches; ++m) {
        for (int s = 0; s < count; ++s) {
          executor.ready(s, exec::Pass::kForward);
          executor.done();
        }
        for (int s = count; s-- > 0;) {
          add_gradient(executor.ready(s, exec::Pass::kBackward), spec_.segments[s].trainable_numel,
                       m);
          compute();
          executor.done();
        }
      }
      executor.wait(instance);
    }
    for (plan::ProgramName name : {plan::ProgramName::kDrain, plan::ProgramName::kCheckpoint}) {
      exec::Instance instance;
      instance.program = name;
      instance.sink = &store_;
      executor.run(instance);
    }
    return store_.hash();
  }

  model::ModelSpec spec_ = model::external_spec({{"a", {{"a.weight", {40, 30}}, {"a.bias", {40}}}},
                                                 {"b", {{"b.weight", {70, 90}}}},
                                                 {"c", {{"c.weight", {8, 8}}}}});
  test::RandomSource frozen_{spec_, 3};
  test::StateStore store_{spec_, frozen_};
  plan::PlanInput input_;
  const test::TemporaryDirectory directory_;
};

TEST_F(External, StateHasTheSameBitsWhereverItLies) {
  for (plan::OptimizerMode mode :
       {plan::OptimizerMode::kDeferred, plan::OptimizerMode::kInBackward}) {
    input_.mode = mode;
    plan::Placement resident = plan::smallest_placement(input_);
    for (std::vector<char>* flags : {&resident.hi_in_host, &resident.state_in_host,
                                     &resident.grad_in_host, &resident.checkpoint_in_host}) {
      std::fill(flags->begin(), flags->end(), 1);
    }
    const uint64_t expected = run(resident, options());
    EXPECT_EQ(run(plan::smallest_placement(input_), options()), expected);
    test::Draw draw(11);
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(run(test::random_placement(draw, input_), options()), expected);
  }
}

// Lanes that wait for the caller look at the deadline once a second.
TEST_F(External, ACallerThatComputesForLongerThanTheDeadlineIsNoHang) {
  const plan::Placement placement = plan::smallest_placement(input_);
  const uint64_t expected = run(placement, options());
  exec::ExecutorOptions hasty = options();
  hasty.deadline_s = 0.5;
  int passes = 0;
  const auto compute = [&] {
    if (++passes == 4) std::this_thread::sleep_for(std::chrono::milliseconds(2200));
  };
  EXPECT_EQ(run(placement, hasty, compute), expected);
}

TEST_F(External, ADeviceThatTheCallerCannotReadIsRefused) {
  input_.device.discrete = true;
  try {
    run(plan::smallest_placement(input_), options());
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_NE(std::string(error.what()).find("plan for the cpu"), std::string::npos);
  }
}

TEST_F(External, APassOutOfTurnNamesBoth) {
  const plan::Plan plan = plan::build_plan(input_, plan::smallest_placement(input_));
  exec::Executor executor(plan, spec_, options());
  test::RandomSource source(spec_, 3);
  exec::Instance load;
  load.program = plan::ProgramName::kLoad;
  load.source = &source;
  executor.run(load);
  exec::Instance step;
  executor.submit(step);
  try {
    executor.ready(1, exec::Pass::kBackward);
    FAIL() << "accepted";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("backward of b"), std::string::npos) << text;
    EXPECT_NE(text.find("forward of a"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace strata
