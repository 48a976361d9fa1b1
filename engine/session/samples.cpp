// SPDX-License-Identifier: Apache-2.0
#include "engine/session/samples.h"

#include <fmt/format.h>

#include <utility>

#include "engine/base/error.h"
#include "engine/session/generation_config.h"

namespace strata::session {

Samples::Samples(const std::vector<Prompt>& prompts, const config::Options& options,
                 const model::ModelDirectory& model, const text::Tokenizer& tokenizer) {
  const int64_t vocabulary = model.architecture().vocabulary;
  prompts_.end_ids = read_end_ids(options.model, model.config(), vocabulary, tokenizer.eos_id());
  prompts_.tokens_max = options.sample_tokens;
  bytes_ = tokenizer.bytes() + options.micro_batch * vocabulary * int64_t{sizeof(float)};
  PromptIds made = prompt_ids(prompts, tokenizer, options);
  if (made.answer_end_ids.size() == 1) {
    add_end_id(made.answer_end_ids.front(), prompts_.end_ids);
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    const int64_t count = std::ssize(made.ids[i]);
    if (count > options.sequence_length) {
      throw Error(ErrorCode::kConfig,
                  fmt::format("sample-prompts: {}: prompt {} has {} tokens, more than "
                              "--sequence-length {} (shorten it)",
                              options.sample_prompts, i + 1, count, options.sequence_length));
    }
    const int64_t tokens = count + options.sample_tokens;
    bytes_ += std::ssize(prompts[i].text) +
              2 * std::min(tokens, options.sequence_length) * int64_t{sizeof(int32_t)};
    texts_.push_back(prompts[i].text);
    prompts_.prompts.push_back(std::move(made.ids[i]));
  }
}

std::vector<train::SampledText> Samples::texts(const std::vector<std::vector<int32_t>>& new_ids,
                                               const text::Tokenizer& tokenizer) const {
  std::vector<train::SampledText> all;
  for (size_t i = 0; i < new_ids.size(); ++i) {
    text::StreamDecoder decoder(tokenizer);
    std::string text;
    for (const int32_t id : new_ids[i]) text += decoder.push(id);
    all.push_back({texts_[i], text + decoder.finish()});
  }
  return all;
}

}  // namespace strata::session
