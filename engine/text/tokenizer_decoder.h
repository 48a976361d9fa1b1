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
using DecodeStep = std::variant<DecodeByteLevel, DecodeByteFallback, DecodeFuse, DecodeMetaspace,
                                DecodeReplace, DecodeStrip>;

std::string decode_tokens(const std::vector<DecodeStep>& steps, std::vector<std::string> tokens);

}  // namespace strata::text
