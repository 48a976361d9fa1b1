// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "engine/text/text_regex.h"

namespace strata::text {

// The steps from token strings to text; each maps a list of strings to a list of strings.
struct DecodeByteLevel {};  // characters of the byte alphabet become bytes; all is joined
struct DecodeByteFallback {
};  // runs of <0x..> become text, or U+FFFD a byte where they are no UTF-8
struct DecodeFuse {};
struct DecodeMetaspace {
  std::string replacement;
  bool drops_first;  // replacements in the first token vanish instead of becoming spaces
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
