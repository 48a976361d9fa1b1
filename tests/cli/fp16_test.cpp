// SPDX-License-Identifier: Apache-2.0
// Runs in fp16: the scale of the loss in metrics, summary and checkpoints, and steps that overflow.
#include "tests/cli/metrics_records.h"
#include "tests/cli/program.h"

namespace strata::cli::test {
namespace {

class Fp16 : public testing::Test {
 protected:
  void SetUp() override { make_model(sandbox_, "model", {}); }

  Arguments train(const std::string& out, const Arguments& more) {
    Arguments all = {"train", "--model",  "model",     "--data",       STRATA_TEXT,
                     "--out", out,        "--machine", STRATA_MACHINE, "--sequence-length",
                     "32",    "--recipe", "fp16",      "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  config::Json run(const Arguments& arguments) {
    Process process(arguments, {.directory = sandbox_.path()});
    EXPECT_EQ(process.wait(), 0) << process.err();
    return config::Json::parse(process.out(), "output");
  }

  const Sandbox sandbox_;
};

TEST_F(Fp16, ARunTrainsAndGoesOnWithItsScale) {
  const config::Json whole = run(train("whole", {"--steps", "4"}));
  EXPECT_EQ(whole.find("loss_scale")->number(), 65536);
  EXPECT_EQ(whole.find("overflowed_steps")->int64(), 0);
  EXPECT_LT(whole.find("last_loss")->number(), whole.find("first_loss")->number());
  for (const config::Json& record : metrics_of(sandbox_ / "whole")) {
    EXPECT_EQ(record.find("loss_scale")->number(), 65536);
    EXPECT_EQ(record.find("skipped"), nullptr);
  }

  run(train("parts", {"--steps", "4", "--checkpoint-every", "2", "--keep-checkpoints", "2"}));
  const std::string manifest = read_text(sandbox_ / "parts/checkpoints/step-000002/manifest.json");
  EXPECT_NE(manifest.find(R"("loss_scale")"), std::string::npos) << manifest;
  const config::Json again =
      run(train("parts", {"--steps", "4", "--resume", "parts/checkpoints/step-000002", "--force"}));
  EXPECT_EQ(again.find("state_hash")->string(), whole.find("state_hash")->string());
  const config::Json drive =
      run(train("drive", {"--steps", "4", "--nvme", ".", "--offload", "nvme"}));
  EXPECT_EQ(drive.find("state_hash")->string(), whole.find("state_hash")->string());
}

// Updates wait for the decision about the scale also where gradients are not clipped.
TEST_F(Fp16, UpdatesWaitWithoutClippingToo) {
  run(train("run", {"--steps", "2", "--clip", "0"}));
  const auto plan = config::Json::parse(read_text(sandbox_ / "run/plan.json"), "plan");
  EXPECT_EQ(plan.find("optimizer_mode")->string(), "deferred");
}

// Steps so large that gradients overflow, and then what the model computes.
TEST_F(Fp16, StepsThatOverflowAreSkippedAndALossThatDoesEndsTheRun) {
  Process process(train("run", {"--steps", "40", "--lr", "1", "--clip", "0"}),
                  {.directory = sandbox_.path()});
  EXPECT_NE(process.wait(), 0) << process.out();
  EXPECT_NE(process.err().find("not finite, and the update was not applied (use --recipe bf16"),
            std::string::npos)
      << process.err();
  double scale = 65536;
  int skipped = 0;
  for (const config::Json& record : metrics_of(sandbox_ / "run")) {
    EXPECT_EQ(record.find("loss_scale")->number(), scale);
    EXPECT_TRUE(record.find("loss")->is_number());
    if (record.find("skipped") == nullptr) continue;
    EXPECT_EQ(record.find("skipped")->string(), "gradients overflowed");
    ++skipped;
    scale /= 2;
  }
  EXPECT_GT(skipped, 0);
}

}  // namespace
}  // namespace strata::cli::test
