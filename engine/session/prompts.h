// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/options.h"
#include "engine/data/data_records.h"
#include "engine/text/tokenizer.h"

namespace strata::session {

// What a model is asked: to continue a text, or to answer in a chat.
struct Prompt {
  std::string text;                      // of a chat, that of its last message
  std::optional<data::ChatRecord> chat;  // with the message of --system
  std::string where;                     // of a chat: file and line
};

// The text, or with --chat the user's message that it is.
Prompt prompt_of(const std::string& text, const config::Options& options);

// What a prompt takes until its text has ended, without the tokens that follow it.
int64_t held_bytes(const Prompt& prompt);

// The prompts of a file: its lines that are not empty or, of a .jsonl file, the "prompt" or, where
// it `takes_chats`, the "messages" of each line's object. Throws Error{kConfig} that names option,
// file and line, and kDoesNotFit where they would take more than `room_bytes`. Memory: the file has
// at most 32 MiB.
std::vector<Prompt> read_prompts(const char* option, const std::string& path, bool takes_chats,
                                 const config::Options& options, int64_t room_bytes);

// Those of --sample-prompts, whose file is read again when the run is resumed: it is no pipe, and
// has at most 1 MiB.
std::vector<Prompt> read_sample_prompts(const config::Options& options);

// The tokens of prompts.
struct PromptIds {
  std::vector<std::vector<int32_t>> ids;  // at least one for each prompt
  std::string answer_end;                 // see ChatRecords::answer_end(); empty without chats
  std::vector<int32_t> answer_end_ids;
};

// An empty text has the token that starts a text, or else the one that ends the text before. Throws
// Error{kConfig} when the tokenizer, of options.model, has neither, or for a chat that the template
// does not render.
PromptIds prompt_ids(const std::vector<Prompt>& prompts, const text::Tokenizer& tokenizer,
                     const config::Options& options);

}  // namespace strata::session
