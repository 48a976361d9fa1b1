// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/loss_scale.h"

#include <gtest/gtest.h>

#include "tests/support/small_run.h"
#include "tests/support/temporary_directory.h"

namespace strata {
namespace {

using exec::LossScale;

// What torch.amp.GradScaler does with growth_interval 2000.
TEST(LossScale, HalvesAtAnOverflowAndDoublesAfterManyStepsWithoutOne) {
  LossScale scale = exec::first_loss_scale(Recipe::kFp16);
  EXPECT_EQ(scale, (LossScale{65536, 0}));
  EXPECT_EQ(exec::first_loss_scale(Recipe::kBf16), (LossScale{1, 0}));
  scale = next_loss_scale(next_loss_scale(scale, true), false);
  EXPECT_EQ(scale, (LossScale{32768, 0}));
  for (int step = 0; step < 1999; ++step) scale = next_loss_scale(scale, true);
  EXPECT_EQ(scale, (LossScale{32768, 1999}));
  EXPECT_EQ(next_loss_scale(scale, false), (LossScale{16384, 0}));
  EXPECT_EQ(next_loss_scale(scale, true), (LossScale{65536, 0}));
  scale = {exec::kLossScaleMost, 1999};
  EXPECT_EQ(next_loss_scale(scale, true), (LossScale{exec::kLossScaleMost, 0}));
}

class ScaledRun : public testing::Test {
 protected:
  void SetUp() override {
    options_.directory = directory_.path();
    options_.backend = &kernels::ref_backend();
    options_.steps = 4;
    test::Draw draw(3);
    spec_ = test::random_spec(draw, 1, false);
    input_.spec = &spec_;
    input_.shape = {2, 8};
    input_.micro_batches = 2;
    input_.nvme_budget = int64_t{1} << 40;
  }

  test::RunResult run(Recipe recipe) {
    input_.recipe = recipe;
    return small_run(input_, plan::smallest_placement(input_), options_);
  }

  const test::TemporaryDirectory directory_;
  test::RunOptions options_;
  model::ModelSpec spec_;
  plan::PlanInput input_;
};

TEST_F(ScaledRun, HasTheLossesOfFp32) {
  const test::RunResult exact = run(Recipe::kFp32), found = run(Recipe::kFp16);
  for (size_t step = 0; step < exact.losses.size(); ++step) {
    EXPECT_NEAR(found.losses[step] / exact.losses[step], 1, 2e-3) << "step " << step;
    EXPECT_NEAR(found.norms[step] / exact.norms[step], 1, 2e-2) << "step " << step;
  }
  EXPECT_NE(found.losses, exact.losses);
  EXPECT_EQ(found.loss_scales, std::vector<double>(4, 65536));
  EXPECT_EQ(exact.loss_scales, std::vector<double>(4, 1));
}

// Gradients of activations that are a millionth as large are below the least number of fp16.
TEST_F(ScaledRun, KeepsGradientsThatFp16CannotHold) {
  constexpr double kShare = 0x1p-20;
  const test::RunResult plain = run(Recipe::kFp16);
  options_.fill = [&](int64_t step, exec::Instance& instance) {
    test::fill_tokens(input_, step, 2, instance);
    instance.target_count *= static_cast<int64_t>(1 / kShare);
  };
  EXPECT_NEAR(run(Recipe::kFp16).norms[0] / kShare / plain.norms[0], 1, 5e-2);
}

TEST_F(ScaledRun, SkipsAnOverflowAndGoesOnWithHalfTheScale) {
  options_.spoil_before = 2;
  for (const int resume_after : {0, 2}) {
    options_.resume_after = resume_after;
    for (const bool overlaps : {false, true}) {
      options_.overlaps = overlaps;
      const test::RunResult found = run(Recipe::kFp16);
      EXPECT_EQ(found.loss_scales, (std::vector<double>{65536, 65536, 32768, 32768, 32768}));
      EXPECT_EQ(found.updates, options_.steps);
    }
  }
}

}  // namespace
}  // namespace strata
