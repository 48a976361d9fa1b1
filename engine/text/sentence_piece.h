// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "engine/text/tokenizer.h"

namespace strata::text {

// Reads the contents of a tokenizer.model of SentencePiece, with a BPE or Unigram model, for ids
// and texts as the `sentencepiece` library has them, with one exception: control symbols such as
// <s> are found in texts, as Transformers does. Throws Error (kConfig) for anything malformed or
// not supported. `path` is for messages.
//
// Guarantees: time and memory in proportion to the file, at most 512 times its size in steps.
TokenizerDefinition read_sentence_piece(std::string_view bytes, const std::string& path);

// Applies what Transformers' files of a directory say beyond the tokenizer.model: added tokens, and
// the tokens before and after a text. Files that are missing say nothing.
void apply_transformers_files(const std::string& directory, TokenizerDefinition* definition);

}  // namespace strata::text
