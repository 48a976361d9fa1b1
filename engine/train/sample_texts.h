// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/exec/instance.h"
#include "engine/model/footprint.h"

namespace strata::train {

// The texts that a run continues at its evaluations.
struct SamplePrompts {
  std::vector<std::vector<int32_t>> prompts;  // ids; none is empty, or longer than a sequence
  std::vector<int32_t> end_ids;               // each ends a text; ascending
  int64_t tokens_max = 0;                     // of each text, without its prompt
};

// Continues texts with the most likely tokens by passes of a training plan's program `generate`,
// which has no cache of keys and values: a pass computes the whole of B texts and brings a token
// for each. A text ends before an end token, after `tokens_max` new ones, when it has as many
// tokens as a sequence, or where logits are not numbers.
//
// Guarantees: the same prompts, shape and weights give the same tokens. Threads: one. Memory: the
// ids; `prompts` must outlive the object.
class SampleTexts {
 public:
  SampleTexts(const SamplePrompts& prompts, const model::BatchShape& shape, int64_t vocabulary);

  // Sets the inputs of the next pass; returns false when all texts are over.
  bool prepare(exec::Instance& pass);
  // Takes the tokens of that pass from its logits.
  void take(const exec::Instance& pass);
  // Those of each prompt.
  const std::vector<std::vector<int32_t>>& new_ids() const { return new_ids_; }

 private:
  bool is_over(size_t text) const;

  const SamplePrompts& prompts_;
  const model::BatchShape shape_;
  const int64_t vocabulary_;
  std::vector<std::vector<int32_t>> new_ids_;
  std::vector<bool> ended_;   // by an end token
  std::vector<size_t> rows_;  // the text of each row of the pass; those without one are not there
};

// Sizes the inputs and results of a pass of the program `generate` without a cache.
void size_pass(const model::BatchShape& shape, int64_t vocabulary, exec::Instance& pass);

}  // namespace strata::train
