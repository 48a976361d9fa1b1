// SPDX-License-Identifier: Apache-2.0
// [[group]] and --freeze do what torch.optim.AdamW does with parameter groups: a run from the text
// of a --config file equals float64 PyTorch, in memory and with its state on a drive. PyTorch's own
// float32 is within 2e-7 (losses), 6e-7 (norms) and 4e-5 (weights) of this reference.
#include <gtest/gtest.h>

#include "engine/train/run_plan.h"
#include "tests/model/opened_model.h"
#include "tests/train/reference_run.h"

namespace strata::train {
namespace {

constexpr double kFinalTolerance = 2e-3;

class GroupParity : public testing::Test {
 protected:
  GroupParity() {
    const std::vector<std::string> paths = {"--model", "M", "--data", "D", "--out", "O"};
    apply_groups(run_.spec(),
                 config::resolve(config::Command::kTrain, {.toml = run_.reference().text("toml"),
                                                           .toml_name = "groups",
                                                           .args = paths}));
  }

  template <typename Check>
  void for_each_parameter(const Check& check) {
    const model::ModelSpec& spec = run_.spec();
    for (size_t i = 0; i < spec.segments.size(); ++i) {
      for (const model::Parameter& parameter : spec.segments[i].parameters) check(i, parameter);
    }
  }

  std::vector<float> initial(const model::Parameter& parameter) const {
    return model::read_whole(run_.model(), parameter);
  }

  std::vector<float> final(const model::Parameter& parameter) const {
    return run_.reference().part("final.", parameter);
  }

  ReferenceRun run_{"groups"};
};

TEST_F(GroupParity, TwentyStepsEqualTheReference) {
  const Trained run = run_.train(Recipe::kFp32, false);
  const auto losses = run_.reference().numbers("loss");
  const auto norms = run_.reference().numbers("grad_norm");
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(run.losses[i], losses[i], kLossTolerance * losses[i]) << "step " << i;
    EXPECT_NEAR(run.norms[i], norms[i], kNormTolerance * norms[i]) << "step " << i;
  }
  for_each_parameter([&](size_t segment, const model::Parameter& parameter) {
    const auto wanted = final(parameter);
    const double change = exec::largest_difference(initial(parameter), wanted, 1.0);
    if (parameter.frozen || change == 0) return;
    EXPECT_LT(exec::largest_difference(run.masters.of(segment, parameter), wanted, change),
              kFinalTolerance)
        << parameter.name;
  });
}

// What PyTorch left as it was, and why.
TEST_F(GroupParity, AFactorOfZeroChangesNoBit) {
  const Trained run = run_.train(Recipe::kFp32, false);
  int frozen = 0;
  int still = 0;
  for_each_parameter([&](size_t segment, const model::Parameter& parameter) {
    if (initial(parameter) != final(parameter)) return;
    ++(parameter.frozen ? frozen : still);
    if (parameter.frozen) return;
    EXPECT_EQ(run.masters.of(segment, parameter), initial(parameter)) << parameter.name;
  });
  EXPECT_EQ(frozen, 3) << "gate_proj, up_proj and v_proj of the first layer";
  EXPECT_EQ(still, 2) << "k_proj and q_proj of the second";
}

TEST_F(GroupParity, OnADriveTheBitsAreTheSame) {
  for (const Recipe recipe : {Recipe::kFp32, Recipe::kBf16}) {
    const Trained in_memory = run_.train(recipe, false);
    const Trained offloaded = run_.train(recipe, true);
    EXPECT_EQ(in_memory.nvme_bytes, 0);
    EXPECT_GT(offloaded.nvme_bytes, 0);
    EXPECT_EQ(offloaded.losses, in_memory.losses);
    EXPECT_EQ(offloaded.norms, in_memory.norms);
    EXPECT_EQ(offloaded.masters.values(), in_memory.masters.values());
  }
}

}  // namespace
}  // namespace strata::train
