// SPDX-License-Identifier: Apache-2.0
// The end of a run says what limits it and what would help, and takes no longer than it may.
#include "engine/train/run_advice.h"

#include <gtest/gtest.h>

#include "tests/train/plan_fixture.h"

namespace strata::train {
namespace {

config::Options spilled() {
  config::Options options = bf16_options(1);
  options.sequence_length = 128;
  options.host_memory = int64_t{700} << 20;
  return options;
}

TEST(RunAdvice, OneMoreDriveHelpsWhereDrivesLimit) {
  const PlanBasis basis = basis_of(profile("small-2core"), llama(8, 1024), spilled());
  const RunAdvice advice = advise(basis, 0, 1e9);
  EXPECT_NE(advice.limit.find("NVMe"), std::string::npos) << advice.limit;
  ASSERT_FALSE(advice.changes.empty());
  EXPECT_EQ(advice.changes.front().name.substr(0, 8), "one more");
  EXPECT_GT(advice.changes.front().shorter, 0.2);
  for (size_t i = 1; i < advice.changes.size(); ++i) {
    EXPECT_LE(advice.changes[i].shorter, advice.changes[i - 1].shorter);
  }
  EXPECT_TRUE(advice.is_whole);
  // What it says is what `strata plan --compare` says.
  double step_s = 0;
  for (const Compared& one : compare_plans(basis, {}, nullptr)) {
    if (one.name == advice.changes.front().name) step_s = one.report.simulated.step_s;
  }
  EXPECT_DOUBLE_EQ(advice.changes.front().shorter, 1 - step_s / planned(basis).predicted_step_s);
}

TEST(RunAdvice, NothingHelpsARunInMemoryAndItSaysSo) {
  config::Options options = spilled();
  options.host_memory = 0;
  options.nvme.clear();
  options.offload = config::Offload::kHost;
  const RunAdvice advice = advise(basis_of(profile("small-2core"), llama(2, 512), options), 0, 1e9);
  EXPECT_TRUE(advice.changes.empty());
  EXPECT_EQ(advice_text(advice),
            advice.limit + ", by the plan; more memory or drives would not change it");
}

TEST(RunAdvice, IsNotLookedForWherePlanningTakesTooLong) {
  const PlanBasis basis = basis_of(profile("small-2core"), llama(2, 512), spilled());
  const RunAdvice advice = advise(basis, 2, 1);
  EXPECT_TRUE(advice.limit.empty());
  EXPECT_EQ(advice_text(advice), "");
  EXPECT_TRUE(advice_json(advice).is_null());
}

TEST(RunAdvice, TheTwoBestChangesAreSaid) {
  const auto plan = [](const char* name, double step_s) {
    Compared one = {.kind = ComparedKind::kWhatIf, .name = name};
    one.report.simulated.step_s = step_s;
    one.report.bottleneck = "NVMe writes";
    return one;
  };
  const RunAdvice advice = advice_of(
      {plan("as planned", 10), plan("a", 9), plan("b", 6.9), plan("c", 8), plan("d", 9.9)}, true);
  EXPECT_EQ(advice_text(advice),
            "NVMe writes, by the plan; b: steps 31% shorter; c: steps 20% shorter");
  EXPECT_EQ(advice.changes.size(), 3u);
}

}  // namespace
}  // namespace strata::train
