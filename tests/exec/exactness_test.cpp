// SPDX-License-Identifier: Apache-2.0
// Where state lives and how a step is scheduled changes no bit of losses, norms and final state.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/seeds.h"
#include "tests/support/small_run.h"
#include "tests/support/temporary_directory.h"

namespace strata {
namespace {

class Exactness : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.directory = directory_.path();
    options_.backend = &kernels::ref_backend();
  }

  // Runs with the smallest placement, then random ones, on one thread or two, the last of four
  // stopped and resumed. Every other trial has ops of an emulated device begin late.
  void expect_same_bits(test::Draw& draw, const model::ModelSpec& spec, int trials) {
    const plan::PlanInput input = test::random_input(draw, spec, 1);
    plan::PlanInput plain = input;
    plain.device.discrete = false;
    expect_same_bits(draw, input, plain, trials);
  }

  // The same for an input; `plain`, all in memory, gives the bits.
  void expect_same_bits(test::Draw& draw, const plan::PlanInput& input,
                        const plan::PlanInput& plain, int trials) {
    options_.clip = input.mode == plan::OptimizerMode::kDeferred ? 0.5 : 0;
    options_.threads = static_cast<int>(draw.between(1, 2));
    expected_ = small_run(plain, test::all_in_memory(plain), options_);
    EXPECT_EQ(expected_.bytes_read, 0) << "in memory, yet NVMe was read";
    options_.io_backend = draw.coin() ? io::Backend::kUring : io::Backend::kThreads;
    for (int trial = 0; trial < trials; ++trial) {
      const plan::Placement placement =
          trial == 0 ? plan::smallest_placement(input) : test::random_placement(draw, input);
      options_.resume_after = trial == 3 ? static_cast<int>(draw.between(1, 3)) : 0;
      options_.threads = static_cast<int>(draw.between(1, 2));
      options_.overlaps = draw.coin();
      options_.delay_s_max = trial % 2 == 1 ? 3e-4 : 0;
      options_.delay_seed = static_cast<uint64_t>(trial);
      const test::RunResult result = small_run(input, placement, options_);
      ASSERT_EQ(result.losses, expected_.losses) << "trial " << trial;
      ASSERT_EQ(result.norms, expected_.norms) << "trial " << trial;
      ASSERT_EQ(result.hash, expected_.hash) << "trial " << trial;
      ASSERT_EQ(result.eval_loss, expected_.eval_loss) << "trial " << trial;
      EXPECT_EQ(result.bytes_read, result.bytes_verified);
    }
    options_.resume_after = 0;
    options_.overlaps = false;
    options_.delay_s_max = 0;
  }

  const test::TemporaryDirectory directory_;
  test::RunOptions options_;
  test::RunResult expected_;
};

// The first seed of each is on the cpu kernels.
class ExactnessOf : public Exactness, public testing::WithParamInterface<uint64_t> {};

TEST_P(ExactnessOf, AnyPlacementHasTheBitsOfEverythingInMemory) {
  for (uint64_t seed = GetParam(); seed < GetParam() + test::seeds(3); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    options_.backend = seed == GetParam() ? &kernels::cpu_backend() : &kernels::ref_backend();
    test::Draw draw(seed);
    const model::ModelSpec spec = test::random_spec(draw, 1, true);
    expect_same_bits(draw, spec, 4);
  }
}

int64_t interior_bytes(const plan::PlanInput& input, const plan::Placement& placement) {
  int64_t bytes = 0;
  for (const plan::LedgerLine& line : plan::build_plan(input, placement).arenas.lines) {
    if (line.purpose.find("interiors") != std::string::npos) bytes += line.bytes;
  }
  return bytes;
}

// Its bits are its own: the same wherever state lies, near those of interiors in f32.
TEST_F(Exactness, SoItIsOnADeviceWithInteriorsInBf16) {
  for (const model::Family& family : model::families()) {
    SCOPED_TRACE(family.model_type);
    test::Draw draw(300);
    model::Architecture architecture = test::random_architecture(draw);
    test::become_family(draw, family, architecture);
    const model::ModelSpec spec = test::random_spec_of(draw, architecture, 1, false);
    plan::PlanInput wide = test::random_input(draw, spec, 1);
    wide.device.discrete = true;
    wide.shape = {2, 16};
    wide.device.kernels = kernels::KernelSet::kRef;
    plan::PlanInput input = wide;
    input.device.interior = DType::kBF16;
    expect_same_bits(draw, input, input, 4);
    const test::RunResult& found = expected_;
    const test::RunResult exact = small_run(wide, test::all_in_memory(wide), options_);
    EXPECT_NE(found.losses, exact.losses);
    // Half a unit of bf16's 8 bits on activations of order 1; updates of 1e-2 then multiply it.
    EXPECT_NEAR(found.losses[0], exact.losses[0], 1.0 / 256);
    for (size_t step = 1; step < exact.losses.size(); ++step) {
      EXPECT_NEAR(found.losses[step], exact.losses[step], 0.2) << "step " << step;
    }
    plan::Placement keeps = plan::smallest_placement(input);
    keeps.keep.assign(keeps.keep.size(), 1);
    EXPECT_LT(interior_bytes(input, keeps), interior_bytes(wide, keeps) * 3 / 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ExactnessOf, testing::Values(1, 1001, 2001, 3001, 4001));

// A step whose gradients are not finite leaves no trace: weights and moments stay, and the next
// update's bias correction is that of the step which was left out.
TEST_F(Exactness, AStepThatIsNotFiniteMovesNothing) {
  for (uint64_t seed = 400; seed < 400 + test::seeds(6); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(seed);
    const model::ModelSpec spec = test::random_spec(draw, 1, true);
    plan::PlanInput input = test::random_input(draw, spec, 1);
    input.mode = plan::OptimizerMode::kDeferred;
    if (scales_loss(input.recipe)) input.recipe = Recipe::kBf16;  // it moves the scale
    const plan::Placement placement = test::random_placement(draw, input);
    options_.resume_after = static_cast<int>(draw.between(0, 2));
    options_.spoil_before = 0;
    const test::RunResult clean = small_run(input, placement, options_);
    options_.spoil_before = static_cast<int>(draw.between(1, 3));
    options_.overlaps = draw.coin();
    const test::RunResult spoilt = small_run(input, placement, options_);
    EXPECT_TRUE(spoilt == clean);
    EXPECT_EQ(spoilt.updates, options_.steps);
  }
}

TEST_F(Exactness, SoItIsForEveryFamily) {
  for (const model::Family& family : model::families()) {
    for (uint64_t seed = 1; seed <= test::seeds(2); ++seed) {
      SCOPED_TRACE(family.model_type + (" seed " + std::to_string(seed)));
      test::Draw draw(100 + seed);
      model::Architecture architecture = test::random_architecture(draw);
      test::become_family(draw, family, architecture);
      const model::ModelSpec spec = test::random_spec_of(draw, architecture, 1, seed == 2);
      expect_same_bits(draw, spec, 2);
    }
  }
}

}  // namespace
}  // namespace strata
