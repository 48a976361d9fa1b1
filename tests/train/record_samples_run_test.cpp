// SPDX-License-Identifier: Apache-2.0
// Records that are samples of their own have the loss and the gradients of the record alone:
// padding behind them changes nothing, and neither does a mixture's split into micro-batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "engine/base/units.h"
#include "engine/config/limits.h"
#include "engine/train/trainer.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/temporary_directory.h"

namespace strata::train {
namespace {

constexpr double kTolerance = 1e-5;  // sums of fp32 over rows of other lengths

class RecordSamplesRun : public testing::Test {
 protected:
  RecordSamplesRun() {
    options_.threads = 1;
    options_.recipe = Recipe::kFp32;
    options_.shuffle = false;
    options_.schedule = config::Schedule::kConstant;
    options_.lr = 1e-2;
    options_.samples = config::SampleLayout::kRecord;
  }

  std::string write(const std::string& name, const std::vector<std::string>& completions) {
    std::ofstream file(directory_ / name);
    for (const std::string& text : completions) {
      file << R"({"prompt":"ab","completion":")" << text << "\"}\n";
    }
    return directory_ / name;
  }

  // The steps of a run over these data.
  std::vector<StepMetrics> steps(const std::vector<std::string>& paths, int64_t length,
                                 int64_t count) {
    options_.data = paths;
    options_.sequence_length = length;
    options_.steps = count;
    RunFacts facts;
    facts.limits = config::read_limits();
    facts.machine = config::read_machine(std::string(STRATA_MACHINES) + "/small-2core.toml");
    const text::Tokenizer tokenizer = test::byte_tokenizer();
    const data::Dataset data = data::Dataset::open(paths, &tokenizer,
                                                   {.length = length,
                                                    .vocabulary = model_.architecture().vocabulary,
                                                    .samples = options_.samples});
    const RunPlan plan = plan_run(model_.spec(), options_, facts);
    const test::TemporaryDirectory out;
    std::vector<StepMetrics> steps;
    TrainJob job;
    job.options = &options_;
    job.plan = &plan;
    job.model = &model_;
    job.data = &data;
    job.out = out.path();
    job.events.step = [&](const StepMetrics& step) { steps.push_back(step); };
    train(job);
    return steps;
  }

  static void expect_equal(const std::vector<StepMetrics>& a, const std::vector<StepMetrics>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t k = 0; k < a.size(); ++k) {
      EXPECT_NEAR(a[k].loss, b[k].loss, kTolerance * b[k].loss) << k;
      EXPECT_NEAR(a[k].grad_norm, b[k].grad_norm, kTolerance * b[k].grad_norm) << k;
      EXPECT_EQ(a[k].tokens, b[k].tokens);
    }
  }

  const test::TemporaryDirectory directory_;
  const model::ModelDirectory model_ =
      model::ModelDirectory::open(std::string(STRATA_MODELS) + "/five_heads");
  config::Options options_;
};

// Rows of 8 tokens without padding, and the same in rows of 24. Weights that had gone apart would
// show in the losses of later steps.
TEST_F(RecordSamplesRun, PaddingChangesNothing) {
  options_.micro_batch = 2;
  const std::string path = write("a.jsonl", {"cdefgh", "hgfedc", "ddeeff", "cfcfcf"});
  const auto padded = steps({path}, 24, 6);
  expect_equal(padded, steps({path}, 8, 6));
}

// The first step with each record, beside others in the file, is that of a file of its own with
// rows of its length.
TEST_F(RecordSamplesRun, ARecordIsAsIfItWereAlone) {
  const std::vector<std::string> completions = {"c", "defghdefgh", "cdecde"};
  for (size_t k = 0; k < completions.size(); ++k) {
    std::vector<std::string> turned(completions);
    std::rotate(turned.begin(), turned.begin() + static_cast<int64_t>(k), turned.end());
    const auto among = steps({write("all.jsonl", turned)}, 16, 1);
    const auto length = static_cast<int64_t>(completions[k].size()) + 2;
    expect_equal(among, steps({write("one.jsonl", {completions[k]})}, length, 1));
  }
}

// Each step has all records: six rows with one each, or three that they share.
TEST_F(RecordSamplesRun, RecordsThatShareASampleAreAsIfEachWereAlone) {
  const std::string path =
      write("a.jsonl", {"cdefgh", "hgfedc", "cdefghcdef", "cd", "efgh", "hhggffe"});
  options_.micro_batch = 6;
  const auto alone = steps({path}, 16, 5);
  options_.samples = config::SampleLayout::kPacked;
  options_.micro_batch = 3;
  expect_equal(steps({path}, 16, 5), alone);
  options_.micro_batch = 1;
  options_.accumulate = 3;
  expect_equal(steps({path}, 16, 5), alone);
}

TEST_F(RecordSamplesRun, AMixtureIsTheSameForAnySplit) {
  options_.shuffle = true;
  const std::vector<std::string> paths = {write("a.jsonl", {"cdefgh", "hgfedc", "ddeeff"}) + ":0.8",
                                          write("b.jsonl", {"h", "g", "f", "e", "d"}) + ":0.2"};
  options_.micro_batch = 4;
  const auto whole = steps(paths, 12, 5);
  options_.micro_batch = 1;
  options_.accumulate = 4;
  expect_equal(whole, steps(paths, 12, 5));
}

}  // namespace
}  // namespace strata::train
