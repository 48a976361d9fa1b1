// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/options.h"
#include "engine/model_files/model_directory.h"
#include "engine/session/prompts.h"
#include "engine/text/tokenizer.h"
#include "engine/train/metrics.h"
#include "engine/train/sample_texts.h"

namespace strata::session {

// The prompts of --sample-prompts, which a run continues at each evaluation.
//
// Threads: one. Failure: the constructor throws Error{kConfig} for a prompt without tokens, or with
// more than --sequence-length. `tokenizer` must outlive calls of texts() alone.
class Samples {
 public:
  // `prompts`: of the file, see read_prompts().
  Samples(const std::vector<Prompt>& prompts, const config::Options& options,
          const model::ModelDirectory& model, const text::Tokenizer& tokenizer);

  const train::SamplePrompts& prompts() const { return prompts_; }
  // The memory outside of arenas that a run needs for them, with the tokenizer's.
  int64_t bytes() const { return bytes_; }
  // `new_ids`: the tokens that follow each prompt; empty when there are no samples.
  std::vector<train::SampledText> texts(const std::vector<std::vector<int32_t>>& new_ids,
                                        const text::Tokenizer& tokenizer) const;

 private:
  std::vector<std::string> texts_;
  train::SamplePrompts prompts_;
  int64_t bytes_ = 0;
};

}  // namespace strata::session
