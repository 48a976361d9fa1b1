// SPDX-License-Identifier: Apache-2.0
// Every model directory of the references trains through plan and executor: with the losses and
// norms of float64 PyTorch, and with its state on a drive with the same bits as in memory.
#include <gtest/gtest.h>

#include "tests/train/reference_run.h"

namespace strata::train {
namespace {

// What has groups of its own is another test's.
std::vector<std::string> plain_cases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(exec::case_path(""))) {
    const std::string name = entry.path().filename();
    if (name != "groups") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string case_name(const testing::TestParamInfo<std::string>& info) {
  return info.param;
}

class EveryReference : public testing::TestWithParam<std::string> {};

TEST_P(EveryReference, TrainsOffloadedWithTheBitsOfMemory) {
  const ReferenceRun run(GetParam());
  const Trained in_memory = run.train(Recipe::kFp32, false);
  const auto losses = run.reference().numbers("loss");
  const auto norms = run.reference().numbers("grad_norm");
  ASSERT_EQ(in_memory.losses.size(), losses.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(in_memory.losses[i], losses[i], kLossTolerance * losses[i]) << "step " << i;
    EXPECT_NEAR(in_memory.norms[i], norms[i], kNormTolerance * norms[i]) << "step " << i;
  }
  const Trained offloaded = run.train(Recipe::kFp32, true);
  EXPECT_EQ(in_memory.nvme_bytes, 0);
  EXPECT_GT(offloaded.nvme_bytes, 0);
  EXPECT_EQ(offloaded.losses, in_memory.losses);
  EXPECT_EQ(offloaded.norms, in_memory.norms);
  EXPECT_EQ(offloaded.masters.values(), in_memory.masters.values());
}

// Weights and activations have 11 bits, and gradients those of a scaled loss.
class Fp16Reference : public testing::TestWithParam<std::string> {};

TEST_P(Fp16Reference, TrainsNearFloat64AndOffloadedWithTheBitsOfMemory) {
  constexpr double kTolerance = 2e-3;
  const ReferenceRun run(GetParam());
  const Trained in_memory = run.train(Recipe::kFp16, false);
  const auto losses = run.reference().numbers("loss");
  const auto norms = run.reference().numbers("grad_norm");
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(in_memory.losses[i], losses[i], kTolerance * losses[i]) << "step " << i;
    EXPECT_NEAR(in_memory.norms[i], norms[i], 10 * kTolerance * norms[i]) << "step " << i;
  }
  const Trained offloaded = run.train(Recipe::kFp16, true);
  EXPECT_GT(offloaded.nvme_bytes, 0);
  EXPECT_EQ(offloaded.losses, in_memory.losses);
  EXPECT_EQ(offloaded.masters.values(), in_memory.masters.values());
}

INSTANTIATE_TEST_SUITE_P(Directories, Fp16Reference,
                         testing::Values("gqa_untied", "mha_tied_llama3", "gemma2", "gpt2"),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Directories, EveryReference, testing::ValuesIn(plain_cases()), case_name);

}  // namespace
}  // namespace strata::train
