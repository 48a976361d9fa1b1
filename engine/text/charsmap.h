// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/text_regex.h"

namespace strata::text {

// The replacements of characters that SentencePiece compiles into a model ("precompiled_charsmap"):
// the size of a double array (Darts), the array, and texts that each end with a zero byte, whose
// offsets are the values in the array.
//
// Memory: that of the file. Threads: any number; immutable after construction. Failure: the
// constructor throws Error for anything malformed; no array makes a search read beyond its end.
class Charsmap {
 public:
  // Empty: nothing is replaced.
  Charsmap() = default;
  explicit Charsmap(std::string_view blob);

  struct Rule {
    size_t bytes = 0;  // of the text that it replaces; 0: there is no rule
    std::string_view replacement;
  };
  // The rule for the longest or the shortest beginning of the text that has one.
  Rule longest(std::string_view text) const;
  Rule shortest(std::string_view text) const;
  // Replaces as the `tokenizers` library does: a grapheme cluster of at most 5 bytes by the rule
  // for its shortest beginning, and the characters of other clusters one by one.
  std::string replace_clusters(std::string_view text, AddedBytes& added) const;

 private:
  template <class OnRule>
  void search(std::string_view text, OnRule on_rule) const;

  std::vector<uint32_t> units_;  // of the double array
  std::string texts_;
  std::array<bool, 128> plain_ = {};  // characters that stay as they are before another of these
};

// Throws Error (kConfig) that says what is wrong.
std::string decode_base64(std::string_view text);

}  // namespace strata::text
