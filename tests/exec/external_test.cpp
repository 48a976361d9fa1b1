// SPDX-License-Identifier: Apache-2.0
// A caller that computes by itself: its plans verify, its state has the same bits wherever it lies
// and in whichever order it uses its segments, it may skip a use and take its time, and a use out
// of turn is an error that names both.
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
#include "engine/plan/planner.h"
#include "engine/plan/verifier.h"
#include "tests/support/random_runs.h"
#include "tests/support/random_state.h"
#include "tests/support/seeds.h"
#include "tests/support/temporary_directory.h"

namespace strata {
namespace {

using NextUse = exec::Executor::NextUse;

struct Caller {
  std::function<void()> compute = [] {};
  std::function<bool(int64_t step, NextUse)> skips = [](int64_t, NextUse) { return false; };
};

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
  void add_gradient(const exec::SegmentUse& use, int segment, int micro_batch) const {
    const auto* weights = static_cast<const float*>(use.weights);
    for (int64_t i = 0; i < spec_.segments[segment].trainable_numel; ++i) {
      const float own = 0.1f * weights[i] + static_cast<float>((i + micro_batch) % 7) - 3.0f;
      use.gradient[i] = use.gradient_first ? own : use.gradient[i] + own;
    }
  }

  void do_use(exec::Executor& executor, NextUse next) const {
    const model::ExternalUse& use = spec_.uses[next.use];
    executor.ready(use.segments.front(),
                   use.backward ? exec::Pass::kBackward : exec::Pass::kForward);
    for (const int s : use.segments) {
      if (use.backward) add_gradient(executor.used(s), s, next.micro_batch);
    }
    executor.done();
  }

  uint64_t run(const plan::Placement& placement, const exec::ExecutorOptions& options,
               const Caller& caller = {}) {
    const plan::Plan plan = plan::build_plan(input_, placement);
    const plan::VerifyReport report = plan::verify(plan, spec_);
    EXPECT_TRUE(report.ok()) << report.violations.front().text;
    if (!report.ok()) return 0;
    exec::Executor executor(plan, spec_, options);
    test::RandomSource source(spec_, 3);
    exec::Instance load;
    load.program = plan::ProgramName::kLoad;
    load.source = &source;
    executor.run(load);
    const auto uses = std::ssize(spec_.uses) * input_.micro_batches;
    for (int64_t step = 1; step <= 4; ++step) {
      exec::Instance instance;
      instance.settings = {.lr = 1e-2, .weight_decay = 0.1};
      instance.settings.clip = input_.mode == plan::OptimizerMode::kDeferred ? 1.0 : 0.0;
      executor.submit(instance);
      for (auto i = uses; i-- > 0;) {
        const NextUse next = executor.next_use();
        caller.skips(step, next) ? executor.skip() : do_use(executor, next);
        caller.compute();
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

  const std::vector<model::ExternalSegment> segments_ = {
      {"a", {{"a.weight", {40, 30}}, {"a.bias", {40}}}},
      {"b", {{"b.weight", {70, 90}}}},
      {"c", {{"c.weight", {8, 8}}}},
      {"d", {{"d.scale", {7}}, {"d.weight", {130, 9}}}}};
  model::ModelSpec spec_ = model::external_spec(segments_);
  test::RandomSource frozen_{spec_, 3};
  test::StateStore store_{spec_, frozen_};
  plan::PlanInput input_;
  const test::TemporaryDirectory directory_;
};

plan::Placement resident_placement(const plan::PlanInput& input) {
  plan::Placement resident = plan::smallest_placement(input);
  for (std::vector<char>* flags : {&resident.hi_in_host, &resident.state_in_host,
                                   &resident.grad_in_host, &resident.checkpoint_in_host}) {
    std::fill(flags->begin(), flags->end(), 1);
  }
  return resident;
}

// Segments a, b, c, d are 0 to 3.
const std::vector<std::vector<model::ExternalUse>>& orders() {
  static const std::vector<std::vector<model::ExternalUse>> all = {
      {},
      // a is read by the head too, and b is used twice
      {{{0}},
       {{1}},
       {{2}},
       {{1}},
       {{3, 0}},
       {{3, 0}, true},
       {{1}, true},
       {{2}, true},
       {{1}, true},
       {{0}, true}},
      // as an encoder and a decoder, with recomputation
      {{{1}}, {{0}}, {{2}}, {{3}}, {{3}}, {{3}, true}, {{0}}, {{2}}, {{2, 0}, true}, {{1}, true}},
      // backward alone, the whole model at once, twice
      {{{2, 1, 0, 3}, true}, {{0, 1, 2, 3}, true}},
  };
  return all;
}

TEST_F(External, StateHasTheSameBitsWhereverItLies) {
  test::Draw draw(11);
  for (const std::vector<model::ExternalUse>& order : orders()) {
    spec_ = model::external_spec(segments_, order);
    for (const plan::UpdateRule& rule : plan::kUpdateTable) {
      for (const int micro_batches : {1, 2, 3}) {
        input_.mode = rule.mode;
        input_.micro_batches = micro_batches;
        const uint64_t expected = run(resident_placement(input_), options());
        EXPECT_EQ(run(plan::smallest_placement(input_), options()), expected);
        for (int i = 0; i < 3; ++i) {
          EXPECT_EQ(run(test::random_placement(draw, input_), options()), expected);
        }
      }
    }
  }
}

// A segment that no use of the order takes back gets one at the end.
std::vector<model::ExternalUse> random_order(test::Draw& draw, int count) {
  std::vector<model::ExternalUse> order(static_cast<size_t>(draw.between(1, 12)));
  std::vector<char> has_backward(static_cast<size_t>(count), 0);
  for (model::ExternalUse& use : order) {
    use.backward = draw.coin();
    use.flops = draw.coin() ? 1e6 : 0;
    const auto first = draw.below(count);
    for (int64_t i = 0; i <= draw.below(3); ++i) {
      use.segments.push_back(static_cast<int>((first + i) % count));
      if (use.backward) has_backward[static_cast<size_t>(use.segments.back())] = 1;
    }
  }
  for (int s = 0; s < count; ++s) {
    if (has_backward[static_cast<size_t>(s)] == 0) order.push_back({{s}, true});
  }
  return order;
}

TEST_F(External, RandomOrdersHaveTheSameBitsWhereverTheirStateLies) {
  for (uint64_t seed = 1; seed <= test::seeds(12); ++seed) {
    test::Draw draw(seed);
    spec_ = model::external_spec(segments_, random_order(draw, 4));
    input_.micro_batches = static_cast<int>(draw.between(1, 3));
    const uint64_t expected = run(resident_placement(input_), options());
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(run(test::random_placement(draw, input_), options()), expected) << seed;
    }
    input_.host_budget =
        plan::build_plan(input_, plan::smallest_placement(input_)).arenas.bytes[1] + 200'000;
    EXPECT_EQ(run(plan::make_plan(input_, {}).placement, options()), expected) << seed;
    input_.host_budget = plan::kNoLimit;
  }
}

TEST_F(External, SumsOfGradientsNeedNoMemoryForAll) {
  input_.micro_batches = 1;
  const int64_t once = plan::build_plan(input_, plan::smallest_placement(input_)).arenas.bytes[1];
  input_.micro_batches = 8;
  const int64_t often = plan::build_plan(input_, plan::smallest_placement(input_)).arenas.bytes[1];
  EXPECT_EQ(once, often);
}

// A skipped backward counts as zeros, in a step's first contribution and in later ones.
TEST_F(External, ASkippedUseAddsNothing) {
  const auto skips_b = [](int64_t step, NextUse next) {
    return step == 2 && (next.use == 1 || next.use == 6) && next.micro_batch != 1;
  };
  input_.micro_batches = 3;
  Caller caller;
  caller.skips = skips_b;
  const uint64_t expected = run(resident_placement(input_), options(), caller);
  EXPECT_EQ(run(plan::smallest_placement(input_), options(), caller), expected);
  EXPECT_NE(run(resident_placement(input_), options()), expected);
}

// Lanes that wait for the caller look at the deadline once a second.
TEST_F(External, ACallerThatComputesForLongerThanTheDeadlineIsNoHang) {
  const plan::Placement placement = plan::smallest_placement(input_);
  const uint64_t expected = run(placement, options());
  exec::ExecutorOptions hasty = options();
  hasty.deadline_s = 0.5;
  int passes = 0;
  Caller caller;
  caller.compute = [&] {
    if (++passes == 4) std::this_thread::sleep_for(std::chrono::milliseconds(2200));
  };
  EXPECT_EQ(run(placement, hasty, caller), expected);
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
