// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "engine/text/text_regex.h"

namespace strata::text {

// The steps from token strings to text; each maps a list of strings to a list of strings.
// Turns characters of the byte alphabet into bytes and joins everything.
struct DecodeByteLevel {};
// Turns runs of <0x..> into text, or into one U+FFFD for each byte when they are not UTF-8.
struct DecodeByteFallback {};
struct DecodeFuse {};
struct DecodeMetaspace {
  std::string replacement;
  bool drops_first;  // replacements in the first token are dropped, not turned into spaces
};
struct DecodeReplace {
  TextPattern pattern;
  std::string content;
};
struct DecodeStrip {
  std::string character;
  int64_t start;
  int64_t stop;
};
// Puts spaces between words; tokens that continue a word lose their prefix.
struct DecodeWordPiece {
  std::string prefix;
  bool cleans_up;  // removes spaces before punctuation and in English contractions
};
// Writes spaces for U+2581 and bytes for <0x..>, each ill-formed one as U+FFFD.
struct DecodeSentencePiece {
  std::string unknown_token;
  std::string unknown_text;
  bool drops_first_space;   // at the start of the text
  bool drops_first_spaces;  // all of them
};
using DecodeStep = std::variant<DecodeByteLevel, DecodeByteFallback, DecodeFuse, DecodeMetaspace,
                                DecodeReplace, DecodeStrip, DecodeWordPiece, DecodeSentencePiece>;

std::string decode_tokens(const std::vector<DecodeStep>& steps, std::vector<std::string> tokens);

}  // namespace strata::text
