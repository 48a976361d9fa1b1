// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/options.h"
#include "engine/session/setup.h"
#include "engine/text/tokenizer.h"
#include "engine/train/inference.h"

// What is done with a model besides training it: its plan, its loss on data, text that it goes on
// with, and a checkpoint of it as a model. All throw Error; what is wrong with the things that
// options name is reported at once.
namespace strata::session {

// The verified plan of the run that `options` describe: from config.json alone, no weights; nothing
// is allocated. With --data its tokens are counted as training counts them. The profile of
// --machine stands for its machine: memory, devices and drives.
train::RunPlan plan_of(const config::Options& options, const std::string& cache_directory);

// The mean loss over --data, or over the part of --eval-fraction where that is given. Throws
// Error{kNumeric} where it is not finite.
train::Inference::Loss evaluate_model(const config::Options& options);

// Text that goes on from --prompt. Each new token is one forward pass over the whole context:
// simple, and the same bits as training. Threads: one.
class Generation {
 public:
  explicit Generation(const config::Options& options);
  ~Generation();

  int64_t new_tokens() const { return new_tokens_; }
  // Generates to the end of the text, or to --max-new-tokens; `emit` gets its pieces, which are
  // whole characters.
  void run(const std::function<void(const std::string& piece)>& emit);

 private:
  class Passes;

  config::Options options_;
  std::unique_ptr<model::ModelDirectory> model_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::vector<int32_t> ids_;
  std::unique_ptr<Passes> passes_;
  int64_t new_tokens_ = 0;
};

struct Exported {
  int64_t step = 0;                // of the checkpoint
  std::vector<std::string> notes;  // what its weights became: complete sentences
};
// The weights of the checkpoint of --resume as the model directory --out; --model names and types
// them.
Exported export_model(const config::Options& options);

}  // namespace strata::session
