// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace strata::session
