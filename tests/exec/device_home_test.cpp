// SPDX-License-Identifier: Apache-2.0
// Weights, state and gradients that live on a discrete device: the same bits, and nothing of them
// on the link.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "engine/plan/builder.h"
#include "engine/plan/simulator.h"
#include "engine/plan/verifier.h"
#include "tests/support/seeds.h"
#include "tests/support/small_run.h"
#include "tests/support/temporary_directory.h"

namespace strata {
namespace {

using plan::Lane;
using plan::OpKind;
using plan::ValueKind;

class DeviceHome : public testing::Test {
 protected:
  void SetUp() override {
    options_.directory = directory_.path();
    options_.backend = &kernels::ref_backend();
  }

  static plan::PlanInput input_of(test::Draw& draw, const model::ModelSpec& spec) {
    plan::PlanInput input = test::random_input(draw, spec, 1);
    input.device.discrete = true;
    return input;
  }

  static plan::Placement homes(const plan::PlanInput& input, int64_t odds, test::Draw& draw) {
    plan::Placement placement = plan::smallest_placement(input);
    test::make_homes(odds, draw, input, placement);
    return placement;
  }

  void expect_same_bits(const plan::PlanInput& input, const plan::Placement& placement) {
    plan::PlanInput plain = input;
    plain.device.discrete = false;
    options_.clip = input.mode == plan::OptimizerMode::kDeferred ? 0.5 : 0;
    options_.delay_s_max = 0;
    const test::RunResult expected = small_run(plain, test::all_in_memory(plain), options_);
    options_.delay_s_max = 3e-4;
    const test::RunResult result = small_run(input, placement, options_);
    EXPECT_EQ(result.losses, expected.losses);
    EXPECT_EQ(result.norms, expected.norms);
    EXPECT_EQ(result.hash, expected.hash);
    EXPECT_EQ(result.eval_loss, expected.eval_loss);
  }

  const test::TemporaryDirectory directory_;
  test::RunOptions options_;
};

// What the ops of a kind move in a step, by kind of value.
std::vector<ValueKind> moved(const plan::Plan& plan, OpKind kind) {
  std::vector<ValueKind> kinds;
  const plan::Program& step = plan.program(plan::ProgramName::kStep);
  for (const plan::Op& op : step.ops) {
    if (op.kind != kind) continue;
    for (const plan::Access& access : step.accesses_of(op)) kinds.push_back(access.value.kind);
  }
  std::sort(kinds.begin(), kinds.end());
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  return kinds;
}

TEST_F(DeviceHome, OfEverythingMovesInputsAndResultsAlone) {
  for (uint64_t seed = 1; seed <= test::seeds(12); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(7000 + seed);
    const model::ModelSpec spec = test::random_spec(draw, 1, true);
    const plan::PlanInput input = input_of(draw, spec);
    plan::Placement placement = homes(input, 4, draw);
    placement.activations_on_device = true;
    const plan::Plan plan = plan::build_plan(input, placement);
    ASSERT_TRUE(plan::verify(plan, spec).ok());
    EXPECT_EQ(moved(plan, OpKind::kUpload), (std::vector{ValueKind::kTokens, ValueKind::kTargets}));
    EXPECT_EQ(moved(plan, OpKind::kDownload),
              (std::vector{ValueKind::kLossSum, ValueKind::kNormPartial}));
    EXPECT_TRUE(moved(plan, OpKind::kFetch).empty());
    EXPECT_TRUE(moved(plan, OpKind::kSpill).empty());
    EXPECT_EQ(plan.arenas.bytes[static_cast<size_t>(plan::Arena::kNvme)], 0);
    expect_same_bits(input, placement);
  }
}

TEST_F(DeviceHome, OfSomeSegmentsHasTheSameBits) {
  for (uint64_t seed = 1; seed <= test::seeds(12); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(8000 + seed);
    const model::ModelSpec spec = test::random_spec(draw, 1, true);
    const plan::PlanInput input = input_of(draw, spec);
    options_.resume_after = seed % 3 == 0 ? 1 : 0;
    expect_same_bits(input, homes(input, 2, draw));
  }
}

TEST_F(DeviceHome, IsChosenByThePlannerWhereItFits) {
  test::Draw draw(9001);
  const model::ModelSpec spec = test::random_spec(draw, 1, false);
  plan::PlanInput input = input_of(draw, spec);
  input.device_budget = int64_t{1} << 30;
  input.host_budget = int64_t{1} << 30;
  plan::Rates rates;
  rates.read_bytes_per_s = rates.write_bytes_per_s = 1e9;
  rates.matmul_flops_per_s = 1e12;
  rates.memory_bytes_per_s = 20e9;
  rates.device_memory_bytes_per_s = 2e12;
  rates.upload_bytes_per_s = rates.download_bytes_per_s = 20e9;
  const plan::PlannedRun run =
      plan::make_plan(input, {.predict = [&](const plan::Plan& plan) {
                        return plan::simulate(plan, plan::ProgramName::kStep, rates).step_s;
                      }});
  const auto& homes = run.placement.home_on_device;
  EXPECT_EQ(std::count(homes.begin(), homes.end(), 0), 0) << run.name;
  expect_same_bits(input, run.placement);
}

// Without a drive, and with less host memory than the state takes.
TEST_F(DeviceHome, TakesWhatTheHostHasNoRoomFor) {
  test::Draw draw(9002);
  const model::ModelSpec spec = test::random_spec(draw, 1, false);
  plan::PlanInput input = input_of(draw, spec);
  input.nvme_budget = 0;
  input.device_budget = int64_t{1} << 30;
  const int64_t all = plan::bytes_of(input, plan::least_placement(input, {}))[1];
  plan::Placement home = plan::smallest_placement(input);
  test::make_homes(4, draw, input, home);
  std::fill(home.checkpoint_in_host.begin(), home.checkpoint_in_host.end(), 1);
  input.host_budget = plan::bytes_of(input, home)[1] + (all - plan::bytes_of(input, home)[1]) / 4;
  const plan::PlannedRun run = plan::make_plan(input, {});
  EXPECT_LE(run.plan.arenas.bytes[1], input.host_budget);
  expect_same_bits(input, run.placement);
}

}  // namespace
}  // namespace strata
