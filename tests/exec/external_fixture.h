// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "engine/exec/executor.h"
#include "engine/model/external.h"
#include "engine/plan/builder.h"
#include "engine/plan/planner.h"
#include "engine/plan/verifier.h"
#include "tests/support/random_runs.h"
#include "tests/support/random_state.h"
#include "tests/support/seeds.h"
#include "tests/support/temporary_directory.h"

// A caller that computes by itself, for four steps over four segments.
namespace strata {

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
    for (const model::Parameter& parameter : spec_.segments[segment].parameters) {
      for (int64_t i = parameter.offset; i < parameter.offset + parameter.numel; ++i) {
        const float own = 0.1f * weights[i] + static_cast<float>((i + micro_batch) % 7) - 3.0f;
        use.gradient[i] = use.gradient_first ? own : use.gradient[i] + own;
      }
    }
  }

  virtual void do_use(exec::Executor& executor, NextUse next) {
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

inline plan::Placement resident_placement(const plan::PlanInput& input) {
  plan::Placement resident = plan::smallest_placement(input);
  for (std::vector<char>* flags : {&resident.hi_in_host, &resident.state_in_host,
                                   &resident.grad_in_host, &resident.checkpoint_in_host}) {
    std::fill(flags->begin(), flags->end(), 1);
  }
  return resident;
}

// Segments a, b, c, d are 0 to 3.
inline const std::vector<std::vector<model::ExternalUse>>& orders() {
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

}  // namespace strata
