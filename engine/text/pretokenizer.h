// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/text/text_regex.h"

namespace strata::text {

// ---- Pre-tokenizers: text to pieces that are tokenized on their own. ----

// What happens to the matches of a pattern that cuts a text.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
enum class PrependScheme { kAlways, kFirst, kNever };

struct SplitStep {
  TextPattern pattern;
  SplitBehavior behavior;
  bool invert;  // the matches are kept, and the text between them is the delimiter
};
struct PrefixSpaceStep {};
struct MetaspaceStep {
  TextPattern replacement_pattern;
  std::string replacement;
  PrependScheme prepend;
  bool split;
};
using PreTokenizeStep = std::variant<SplitStep, PrefixSpaceStep, MetaspaceStep>;

// Where a piece lies in its document.
struct PieceContext {
  bool is_first;   // it is the start of the document
  bool continues;  // it follows other text of the document
};

// Receives the pieces from left to right; the view lives until the call returns.
class PieceSink {
 public:
  virtual void piece(std::string_view text) = 0;

 protected:
  ~PieceSink() = default;
};

// Cuts well-formed UTF-8 by all steps in turn; each step cuts the pieces of the step before. No
// list of pieces is held, so memory does not grow with the text, except for steps that rewrite it.
void pre_tokenize(const std::vector<PreTokenizeStep>& steps, std::string_view text,
                  PieceContext context, PieceSink& sink);

// GPT-2's pattern for splitting words. A ByteLevel step with use_regex means this pattern.
extern const char* const kGpt2Pattern;

// ---- The byte alphabet, in which byte-level vocabularies spell each byte as a character. ----

class ByteAlphabet {
 public:
  ByteAlphabet();
  uint32_t character_of(uint8_t byte) const { return characters_[byte]; }
  // The byte that a character stands for; -1 when it is not in the alphabet.
  int byte_of(uint32_t character) const {
    return character < bytes_.size() ? bytes_[character] : -1;
  }
  std::string spell(std::string_view bytes) const;

 private:
  std::array<uint32_t, 256> characters_;
  std::array<int16_t, 512> bytes_;
};

}  // namespace strata::text
