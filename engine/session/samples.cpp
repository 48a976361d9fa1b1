// SPDX-License-Identifier: Apache-2.0
#include "engine/session/samples.h"

#include <fmt/format.h>

#include <utility>

#include "engine/base/error.h"
#include "engine/session/generation_config.h"
#include "engine/session/prompts.h"

namespace strata::session {

Samples::Samples(std::vector<std::string> prompts, const config::Options& options,
                 const model::ModelDirectory& model, const text::Tokenizer& tokenizer)
    : texts_(std::move(prompts)) {
  const int64_t vocabulary = model.architecture().vocabulary;
  prompts_.end_ids = read_end_ids(options.model, model.config(), vocabulary, tokenizer.eos_id());
  prompts_.tokens_max = options.sample_tokens;
  bytes_ = tokenizer.bytes() + options.micro_batch * vocabulary * int64_t{sizeof(float)};
  for (const std::string& text : texts_) {
    std::vector<int32_t> ids = prompt_ids(text, tokenizer, options);
    const int64_t count = std::ssize(ids);
    if (count > options.sequence_length) {
      throw Error(ErrorCode::kConfig,
                  fmt::format("sample-prompts: {}: prompt {} has {} tokens, more than "
                              "--sequence-length {} (shorten it)",
                              options.sample_prompts, prompts_.prompts.size() + 1, count,
                              options.sequence_length));
    }
    const int64_t tokens = count + options.sample_tokens;
    bytes_ +=
        std::ssize(text) + 2 * std::min(tokens, options.sequence_length) * int64_t{sizeof(int32_t)};
    prompts_.prompts.push_back(std::move(ids));
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
