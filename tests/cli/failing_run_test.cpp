// SPDX-License-Identifier: Apache-2.0
// A run that fails while steps are in flight says why and ends in order.

#include "tests/cli/program.h"

namespace strata::cli::test {
namespace {

class FailingRun : public testing::Test {
 protected:
  void SetUp() override { make_model(sandbox_, "model", {}); }

  Arguments train(const Arguments& more) const {
    Arguments all = {"train", "--model", "model",     "--data",       STRATA_TEXT,
                     "--out", "run",     "--machine", STRATA_MACHINE, "--sequence-length",
                     "32"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void expect_failure(const Arguments& arguments, ProcessOptions options, const char* text) const {
    options.directory = sandbox_.path();
    Process process(arguments, options);
    EXPECT_EQ(process.wait(), 4) << process.err();
    EXPECT_NE(process.err().find(text), std::string::npos) << process.err();
    EXPECT_FALSE(std::filesystem::exists(sandbox_ / "run/run.lock"));
  }

  const Sandbox sandbox_;
};

// The last elements of the last tensor become NaN, in whichever type they are.
void break_weights(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-8, std::ios::end);
  file.write("\xff\xff\xff\xff\xff\xff\xff\xff", 8);
}

TEST_F(FailingRun, ALossThatIsNotFiniteIsReportedHoweverStepsOverlap) {
  break_weights(sandbox_ / "model/model.safetensors");
  const Arguments ways[] = {{},
                            {"--clip", "0"},
                            {"--clip", "0", "--nvme", ".", "--offload", "nvme"},
                            {"--clip", "0", "--ranks", "2"}};
  for (const Arguments& way : ways) {
    for (int again = 0; again < 3; ++again) {
      Arguments arguments = train({"--steps", "30", "--force"});
      arguments.insert(arguments.end(), way.begin(), way.end());
      SCOPED_TRACE(testing::PrintToString(way));
      expect_failure(arguments, {}, "not finite");
    }
  }
}

TEST_F(FailingRun, SoIsThatOfAnEvaluation) {
  break_weights(sandbox_ / "model/model.safetensors");
  expect_failure({"eval", "--model", "model", "--data", STRATA_TEXT, "--sequence-length", "32"}, {},
                 "not finite");
}

TEST_F(FailingRun, MetricsThatCannotBeWrittenEndItAfterACheckpoint) {
  // A checkpoint fits the limit, and the lines of some 6,000 steps do not.
  expect_failure(train({"--steps", "50000"}), {.file_size_limit = 1900 << 10}, "metrics.jsonl");
  EXPECT_FALSE(std::filesystem::is_empty(sandbox_ / "run/checkpoints"));
}

TEST_F(FailingRun, AResumeThatCannotGoOnLeavesTheModel) {
  Process before(train({"--steps", "2"}), {.directory = sandbox_.path()});
  ASSERT_EQ(before.wait(), 0) << before.err();
  const std::string path = sandbox_ / "run/metrics.jsonl";
  std::ifstream file(path);
  std::string first_step, second_step;
  std::getline(file, first_step);
  std::getline(file, second_step);
  std::ofstream(path) << "garbage\n" << second_step << "\n";
  expect_failure(train({"--steps", "4", "--resume"}), {}, "metrics");
  EXPECT_TRUE(std::filesystem::exists(sandbox_ / "run/model/model.safetensors"));
}

}  // namespace
}  // namespace strata::cli::test
