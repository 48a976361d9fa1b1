// SPDX-License-Identifier: Apache-2.0
#include "engine/train/text_generator.h"

#include <algorithm>

#include "engine/base/check.h"

namespace strata::train {

void TextGenerator::run(std::span<GrowingText> texts, int64_t tokens_max, const Events& events) {
  STRATA_CHECK(shape_.is_cached());
  rows_.assign(static_cast<size_t>(shape_.cache_rows), {});
  next_text_ = 0;
  while (fill_rows(texts)) {
    if (events.should_stop && events.should_stop()) return;
    add_tokens(texts);
    inference_.run(pass_);
    take_tokens(texts, tokens_max, events);
  }
}

// Gives rows without a text the next ones. Returns false when no row has a text.
bool TextGenerator::fill_rows(std::span<const GrowingText> texts) {
  bool any = false;
  for (Row& row : rows_) {
    while (row.text < 0 && next_text_ < texts.size()) {
      const GrowingText& text = texts[next_text_];
      const bool fits = std::ssize(text.ids) <= shape_.cache_positions;
      STRATA_CHECK(!text.ids.empty());
      if (!text.is_over && fits) row = {static_cast<int64_t>(next_text_), 0};
      ++next_text_;
    }
    any |= row.text >= 0;
  }
  return any;
}

// Texts that have begun go first, with one token each; prompts share the rest of the pass.
void TextGenerator::add_tokens(std::span<const GrowingText> texts) {
  pass_.tokens.clear();
  pass_.rows.clear();
  pass_.positions.clear();
  pass_.wanted.clear();
  wanting_.clear();
  for (const bool begun : {true, false}) {
    for (int32_t r = 0; r < std::ssize(rows_); ++r) {
      Row& row = rows_[static_cast<size_t>(r)];
      if (row.text < 0) continue;
      const GrowingText& text = texts[static_cast<size_t>(row.text)];
      const int64_t left = std::ssize(text.ids) - row.cached;
      if (left == 0 || (left == 1) != begun) continue;
      const int64_t count = std::min(left, shape_.length - std::ssize(pass_.tokens));
      add(text, r, count);
      row.cached += count;
      if (count < left) continue;
      pass_.wanted.push_back(static_cast<int32_t>(pass_.tokens.size()) - 1);
      wanting_.push_back(r);
    }
  }
}

void TextGenerator::add(const GrowingText& text, int32_t row, int64_t count) {
  const int64_t first = rows_[static_cast<size_t>(row)].cached;
  for (int64_t i = first; i < first + count; ++i) {
    pass_.tokens.push_back(text.ids[static_cast<size_t>(i)]);
    pass_.rows.push_back(row);
    pass_.positions.push_back(static_cast<int32_t>(i));
  }
}

void TextGenerator::take_tokens(std::span<GrowingText> texts, int64_t tokens_max,
                                const Events& events) {
  const int64_t vocabulary = inference_.vocabulary();
  for (size_t i = 0; i < wanting_.size(); ++i) {
    Row& row = rows_[static_cast<size_t>(wanting_[i])];
    GrowingText& text = texts[static_cast<size_t>(row.text)];
    const float* logits = inference_.logits().data() + static_cast<int64_t>(i) * vocabulary;
    const int32_t token = sampler_.next(logits, vocabulary, text.sequence, text.new_tokens);
    text.is_over = !events.on_token(static_cast<size_t>(row.text), token);
    if (!text.is_over) {
      text.ids.push_back(token);
      text.is_over = ++text.new_tokens >= tokens_max;
    }
    const bool is_full = std::ssize(text.ids) > shape_.cache_positions;
    if (text.is_over || is_full) row = {};
  }
}

}  // namespace strata::train
