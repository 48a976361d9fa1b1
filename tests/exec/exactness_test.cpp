// SPDX-License-Identifier: Apache-2.0
// Where state lives and how a step is scheduled changes no bit of losses, norms and final state.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/seeds.h"
#include "tests/support/small_run.h"

namespace strata {
namespace {

std::string scratch() {
  return std::string(STRATA_BINARY_DIR) + "/scratch-" + std::to_string(getpid());
}

class Exactness : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(scratch());
    options_.directory = scratch();
    options_.backend = &kernels::ref_backend();
  }
  void TearDown() override { std::filesystem::remove_all(scratch()); }

  // Runs with the smallest placement, then random ones, on one thread or two, the last of four
  // stopped and resumed. Every other trial has ops of an emulated device begin late.
  void expect_same_bits(test::Draw& draw, const model::ModelSpec& spec, int trials) {
    plan::PlanInput input = test::random_input(draw, spec, 1);
    options_.clip = input.mode == plan::OptimizerMode::kDeferred ? 0.5 : 0;
    options_.threads = static_cast<int>(draw.between(1, 2));
    plan::PlanInput plain = input;
    plain.discrete = false;
    const test::RunResult expected = small_run(plain, test::all_in_memory(plain), options_);
    EXPECT_EQ(expected.bytes_read, 0) << "in memory, yet NVMe was read";
    options_.io_backend = draw.coin() ? io::Backend::kUring : io::Backend::kThreads;
    for (int trial = 0; trial < trials; ++trial) {
      const plan::Placement placement =
          trial == 0 ? plan::smallest_placement(input) : test::random_placement(draw, input);
      options_.resume_after = trial == 3 ? static_cast<int>(draw.between(1, 3)) : 0;
      options_.threads = static_cast<int>(draw.between(1, 2));
      options_.delay_s_max = trial % 2 == 1 ? 3e-4 : 0;
      options_.delay_seed = static_cast<uint64_t>(trial);
      const test::RunResult result = small_run(input, placement, options_);
      ASSERT_EQ(result.losses, expected.losses) << "trial " << trial;
      ASSERT_EQ(result.norms, expected.norms) << "trial " << trial;
      ASSERT_EQ(result.hash, expected.hash) << "trial " << trial;
      ASSERT_EQ(result.eval_loss, expected.eval_loss) << "trial " << trial;
      EXPECT_EQ(result.bytes_read, result.bytes_verified);
    }
    options_.resume_after = 0;
  }

  test::RunOptions options_;
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

INSTANTIATE_TEST_SUITE_P(Seeds, ExactnessOf, testing::Values(1, 1001, 2001, 3001, 4001));

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
