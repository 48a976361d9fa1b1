// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/machine.h"
#include "engine/text/tokenizer.h"
#include "engine/train/trainer.h"
#include "tests/support/temporary_directory.h"

namespace strata::train {

// A run in this process, on tokens that follow a rule.
class Training : public testing::Test {
 protected:
  explicit Training(const std::string& model = "tinyllama")
      : model_(model::ModelDirectory::open(std::string(STRATA_MODELS) + "/" + model)) {
    options_.sequence_length = 8;
    options_.threads = 1;
  }

  // A token file of so many samples.
  void write_tokens(int64_t samples) {
    std::ofstream file(directory_ / "tokens.bin", std::ios::binary);
    const int64_t ids = std::min<int64_t>(59, model_.architecture().vocabulary);
    for (int64_t i = 0; i <= samples * options_.sequence_length; ++i) {
      file << static_cast<char>(i * i % ids) << '\0';
    }
    file.close();
    options_.data = {directory_ / "tokens.bin"};
  }

  data::Dataset open_data() const {
    return data::Dataset::open(
        options_.data, tokenizer_ ? &*tokenizer_ : nullptr,
        {.length = options_.sequence_length,
         .vocabulary = model_.architecture().vocabulary,
         .held_out_fraction = options_.eval_every > 0 ? options_.eval_fraction : 0.0});
  }

  // Runs `job_` to its end; what it does is added to `log_`.
  TrainResult run() {
    RunFacts facts;
    facts.limits = config::read_limits();
    facts.machine = config::read_machine(std::string(STRATA_MACHINES) + "/small-2core.toml");
    const data::Dataset data = open_data();
    const RunPlan plan = plan_run(model_.spec(), options_, facts);
    job_.options = &options_;
    job_.plan = &plan;
    job_.model = &model_;
    job_.data = &data;
    job_.out = directory_.path();
    job_.stop = &stop_;
    job_.phase = &phase_;
    job_.events.step = [&](const StepMetrics& metrics) {
      steps_.push_back(metrics);
      log_ += "step " + std::to_string(metrics.step) + "\n";
    };
    job_.events.evaluated = [&](int64_t step, double, const auto&) {
      log_ += "evaluated " + std::to_string(step) + "\n";
    };
    job_.events.checkpointed = [&](int64_t step, const std::string&) {
      log_ += "saved " + std::to_string(step) + "\n";
    };
    return train(job_);
  }

  const test::TemporaryDirectory directory_;
  const model::ModelDirectory model_;
  std::optional<text::Tokenizer> tokenizer_;
  config::Options options_;
  TrainJob job_;
  std::atomic<bool> stop_ = false;
  std::atomic<RunPhase> phase_ = RunPhase::kLoad;
  std::vector<StepMetrics> steps_;
  std::string log_;
};

}  // namespace strata::train
