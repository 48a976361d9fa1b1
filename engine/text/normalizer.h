// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/text/charsmap.h"
#include "engine/text/text_regex.h"
#include "engine/text/text_unicode.h"
#include "engine/text/tokenizer_trie.h"

namespace strata::text {

// The steps from text to text, before everything else.
struct NormalizeUnicode {
  UnicodeForm form;
};
struct NormalizeLowercase {};
struct NormalizeAccents {};   // removes marks of all kinds
struct NormalizeControls {};  // removes control characters as NMT does; white space becomes ' '
struct NormalizePrepend {
  std::string text;
};
struct NormalizeReplace {
  TextPattern pattern;
  std::string content;
};
struct NormalizeStrip {
  bool left;
  bool right;
};
struct NormalizeBert {
  bool cleans;
  bool spaces_ideographs;
  bool strips_accents;
  bool lowercases;
};
struct NormalizeCharsmap {
  Charsmap charsmap;
};
// All that SentencePiece does to a text: replaces by the charsmap, and writes spaces as U+2581.
struct NormalizeSentencePiece {
  Charsmap charsmap;
  TokenTrie verbatim;          // texts that the charsmap does not change
  bool prepends_space = true;  // or appends it, when spaces end words
  bool removes_spaces = true;  // at both ends, and all but one between words
  bool spaces_end_words = false;
};
using NormalizeStep =
    std::variant<NormalizeUnicode, NormalizeLowercase, NormalizeAccents, NormalizeControls,
                 NormalizePrepend, NormalizeReplace, NormalizeStrip, NormalizeBert,
                 NormalizeCharsmap, NormalizeSentencePiece>;

// `continues`: the text follows other text of the same document, so nothing is prepended to it.
// Throws Error as AddedBytes does.
std::string normalize(const std::vector<NormalizeStep>& steps, std::string_view text,
                      bool continues);

}  // namespace strata::text
