// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/train/inference.h"
#include "engine/train/sampling.h"

namespace strata::train {

// A text that grows.
struct GrowingText {
  std::vector<int32_t> ids;  // at first the prompt, which must not be empty
  int64_t new_tokens = 0;
  int64_t sequence = 0;  // the number of the text, on which its random choices depend
  bool is_over = false;
};

// Continues texts, several at once, by passes over the tokens that the cache of keys and values
// does not have yet: parts of prompts, and one new token of each text that has begun. A text that
// is over makes room for the next.
//
// Guarantees: the tokens of a text depend on its prompt, the options of sampling, its number and
// the model alone, not on other texts, on how many are continued at once, or on placement. Threads:
// one. Failure: Error.
class TextGenerator {
 public:
  // The plan must have a cache; plan and inference must outlive this.
  TextGenerator(const plan::Plan& plan, Inference& inference, const SamplingOptions& sampling)
      : shape_(plan.shape), inference_(inference), sampler_(sampling) {}

  struct Events {
    // A text got a token; returns false where the text is over before it, so that it is not added.
    std::function<bool(size_t text, int32_t token)> on_token;
    std::function<bool()> should_stop;  // asked before each pass
  };
  // Continues the texts that are not over, each until that, `tokens_max` new tokens, or more tokens
  // than the plan has positions, or until all shall stop.
  void run(std::span<GrowingText> texts, int64_t tokens_max, const Events& events);

 private:
  // A row of the cache.
  struct Row {
    int64_t text = -1;   // none
    int64_t cached = 0;  // tokens of it in the cache
  };
  bool fill_rows(std::span<const GrowingText> texts);
  void add_tokens(std::span<const GrowingText> texts);
  void add(const GrowingText& text, int32_t row, int64_t count);
  void take_tokens(std::span<GrowingText> texts, int64_t tokens_max, const Events& events);

  const model::BatchShape shape_;
  Inference& inference_;
  TokenSampler sampler_;
  std::vector<Row> rows_;
  size_t next_text_ = 0;
  Inference::Pass pass_;
  std::vector<int32_t> wanting_;  // by logits of the pass: the row
};

}  // namespace strata::train
