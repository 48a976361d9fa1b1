// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "engine/text/pretokenizer.h"
#include "engine/text/tokenizer.h"

namespace strata::test {

// Every byte is its own token; 256 ends a document.
inline text::Tokenizer byte_tokenizer(std::string chat_template = "") {
  text::TokenizerDefinition definition;
  const text::ByteAlphabet alphabet;
  for (int byte = 0; byte < 256; ++byte) {
    definition.model.vocabulary.emplace_back(
        alphabet.spell(std::string(1, static_cast<char>(byte))), byte);
  }
  definition.byte_level = true;
  definition.added_tokens.push_back({.content = "<e>", .id = 256, .special = true});
  text::TokenizerConfig config;
  config.eos_id = 256;
  config.special_tokens = {{"eos_token", "<e>"}};
  if (!chat_template.empty()) {
    config.chat_templates.push_back({"default", std::move(chat_template), "chat_template.jinja"});
  }
  return text::Tokenizer(std::move(definition), std::move(config));
}

}  // namespace strata::test
