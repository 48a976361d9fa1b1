// SPDX-License-Identifier: Apache-2.0
#include "engine/train/sample_texts.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"

namespace strata::train {

void size_pass(const model::BatchShape& shape, int64_t vocabulary, exec::Instance& pass) {
  STRATA_CHECK(!shape.is_cached());
  pass.program = plan::ProgramName::kGenerate;
  // With documents, each row is one, which starts at 0.
  pass.tokens.assign(static_cast<size_t>(model::token_bytes(shape)) / sizeof(int32_t), 0);
  pass.logit_position.assign(static_cast<size_t>(shape.rows), 0);
  pass.logits.resize(static_cast<size_t>(shape.rows * vocabulary));
}

SampleTexts::SampleTexts(const SamplePrompts& prompts, const model::BatchShape& shape,
                         int64_t vocabulary)
    : prompts_(prompts),
      shape_(shape),
      vocabulary_(vocabulary),
      new_ids_(prompts.prompts.size()),
      ended_(prompts.prompts.size()) {
  for (const std::vector<int32_t>& ids : prompts.prompts) {
    STRATA_CHECK(!ids.empty() && std::ssize(ids) <= shape.length);
  }
}

bool SampleTexts::is_over(size_t text) const {
  const int64_t count = std::ssize(new_ids_[text]);
  return ended_[text] || count >= prompts_.tokens_max ||
         std::ssize(prompts_.prompts[text]) + count >= shape_.length;
}

// Texts that have begun stay in the pass until they are over; later ones take their places.
bool SampleTexts::prepare(exec::Instance& pass) {
  rows_.clear();
  for (size_t text = 0; text < new_ids_.size() && std::ssize(rows_) < shape_.rows; ++text) {
    if (!is_over(text)) rows_.push_back(text);
  }
  if (rows_.empty()) return false;
  size_pass(shape_, vocabulary_, pass);
  for (size_t row = 0; row < rows_.size(); ++row) {
    const std::vector<int32_t>& prompt = prompts_.prompts[rows_[row]];
    const std::vector<int32_t>& more = new_ids_[rows_[row]];
    auto to = pass.tokens.begin() + static_cast<int64_t>(row) * shape_.length;
    std::ranges::copy(more, std::ranges::copy(prompt, to).out);
    pass.logit_position[row] = static_cast<int32_t>(prompt.size() + more.size()) - 1;
  }
  return true;
}

// A run goes on when its model is broken, so logits that are not numbers only end the text.
void SampleTexts::take(const exec::Instance& pass) {
  for (size_t row = 0; row < rows_.size(); ++row) {
    const size_t text = rows_[row];
    const float* logits = pass.logits.data() + static_cast<int64_t>(row) * vocabulary_;
    const float* most_likely = std::max_element(logits, logits + vocabulary_);
    const auto token = static_cast<int32_t>(most_likely - logits);
    if (!std::isfinite(*most_likely) || std::ranges::binary_search(prompts_.end_ids, token)) {
      ended_[text] = true;
    } else {
      new_ids_[text].push_back(token);
    }
  }
}

}  // namespace strata::train
