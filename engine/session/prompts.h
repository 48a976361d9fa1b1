// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/json.h"
#include "engine/config/options.h"
#include "engine/text/tokenizer.h"

namespace strata::session {

// The prompts of a file: its lines that are not empty or, of a .jsonl file, the "prompt" of each
// line's object. Throws Error{kConfig} that names option, file and line.
std::vector<std::string> read_prompts(const char* option, const std::string& path);

// The ids of a prompt, at least one: an empty prompt has the token that starts a text, or else the
// one that ends the text before. Throws Error{kConfig} when the tokenizer, of options.model, has
// neither.
std::vector<int32_t> prompt_ids(const std::string& prompt, const text::Tokenizer& tokenizer,
                                const config::Options& options);

// What a model is asked with --chat.
struct AskedChat {
  std::string prompt;  // the text of its last message
  config::Json messages;
};
// The message of --system, if there is one, and a user's message.
AskedChat chat_of(const std::string& message, const config::Options& options);
// The chats of a file: each line that is not empty is a user's message; of a .jsonl file, each
// line's object has a "prompt" that is one, or "messages". Throws as read_prompts().
std::vector<AskedChat> read_chats(const char* option, const std::string& path,
                                  const config::Options& options);

}  // namespace strata::session
