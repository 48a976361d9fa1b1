// SPDX-License-Identifier: Apache-2.0
// Frozen weights that are read again from the model's files keep the pace of --nvme-rate, as the
// plan expects of every read, and a run that ends does not wait for it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "engine/base/clock.h"
#include "engine/exec/executor.h"
#include "engine/plan/builder.h"
#include "engine/plan/simulator.h"
#include "tests/support/small_model.h"
#include "tests/support/small_run.h"

namespace strata {
namespace {

class FrozenRate : public ::testing::Test {
 protected:
  void SetUp() override {
    spec_ = model::build_spec(test::small_llama());
    for (model::Segment& segment : spec_.segments) {
      for (model::Parameter& parameter : segment.parameters) parameter.frozen = true;
    }
    model::assign_offsets(spec_, 1);
    input_.spec = &spec_;
    input_.shape = {1, 8};
    input_.inference = true;
    input_.frozen_in_source = true;
    plan_ = plan::build_plan(input_, plan::smallest_placement(input_));
  }

  int64_t bytes_of_converts() const {
    int64_t bytes = 0;
    for (const plan::Op& op : plan_.program(plan::ProgramName::kEval).ops) {
      const bool again = op.lane == plan::Lane::kReadWeights;
      bytes += again && op.kind == plan::OpKind::kConvert ? op.bytes : 0;
    }
    return bytes;
  }

  std::unique_ptr<exec::Executor> executor(double read_bytes_per_s) {
    exec::ExecutorOptions options;
    options.backend = &kernels::ref_backend();
    options.rates.read_bytes_per_s = read_bytes_per_s;
    options.frozen = &source_;
    options.deadline_s = 60;
    auto executor = std::make_unique<exec::Executor>(plan_, spec_, options);
    exec::Instance load;
    load.program = plan::ProgramName::kLoad;
    load.source = &source_;
    executor->run(load);
    return executor;
  }

  void prepare(exec::Instance& eval) const {
    eval.program = plan::ProgramName::kEval;
    test::fill_tokens(input_, 1, 1, eval);
  }

  double seconds_of_eval(double read_bytes_per_s) {
    const auto run = executor(read_bytes_per_s);
    exec::Instance eval;
    prepare(eval);
    const double begin_s = now_s();
    run->run(eval);
    return now_s() - begin_s;
  }

  model::ModelSpec spec_;
  plan::PlanInput input_;
  plan::Plan plan_;
  test::RandomSource source_{spec_, 3};
};

TEST_F(FrozenRate, IsThatOfTheLimitAsThePlanPredicts) {
  const auto bytes = static_cast<double>(bytes_of_converts());
  ASSERT_GT(bytes, 100'000);
  const double wanted_s = 1;
  plan::Rates rates;
  rates.read_bytes_per_s = bytes / wanted_s;
  rates.matmul_flops_per_s = rates.memory_bytes_per_s = 1e15;
  const double predicted_s = plan::simulate(plan_, plan::ProgramName::kEval, rates).step_s;
  EXPECT_NEAR(predicted_s, wanted_s, 0.1);
  // The first of the reads need not wait, and the last is fast once it may begin.
  const double limited_s = seconds_of_eval(rates.read_bytes_per_s);
  EXPECT_GT(limited_s, 0.7 * predicted_s);
  double unlimited_s = limited_s;  // a busy machine may be late, but not each time
  for (int i = 0; i < 10 && unlimited_s > 0.5 * limited_s; ++i) {
    unlimited_s = std::min(unlimited_s, seconds_of_eval(0));
  }
  EXPECT_LT(unlimited_s, 0.5 * limited_s);
}

TEST_F(FrozenRate, IsNotWaitedForByARunThatEnds) {
  constexpr double kHoursOfWaiting = 10;  // bytes a second
  auto run = executor(kHoursOfWaiting);
  exec::Instance eval;
  prepare(eval);
  run->submit(eval);
  const double begin_s = now_s();
  run.reset();
  EXPECT_LT(now_s() - begin_s, 30);
}

}  // namespace
}  // namespace strata
