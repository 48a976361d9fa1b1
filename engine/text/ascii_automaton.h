// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace strata::text {

// A regular expression as a table of states, which finds the end of a match in one step a byte
// where the text is ASCII.
//
// Guarantees: the match is that of a backtracking engine, which tries alternatives from left to
// right. Patterns of characters, classes, groups, alternatives, greedy repeats and looks at the
// next character have such a table; others, and those of more than 256 states, have none. Threads:
// any number. Memory: at most 130 KiB.
class AsciiAutomaton {
 public:
  using Characters = std::bitset<128>;
  // The characters that an atom of a pattern matches: "a", "\\n", "[^\\p{L}]".
  using FindCharacters = std::function<Characters(std::string_view atom, bool ignores_case)>;

  // `pattern` is in the syntax of PCRE2, and valid.
  static std::optional<AsciiAutomaton> make(std::string_view pattern, const FindCharacters& find);

  // The end of the match that begins at `from`; npos where there is none, or where another
  // character than ASCII decides.
  size_t match_end(std::string_view text, size_t from) const {
    size_t end = std::string_view::npos;
    size_t row = 0;
    for (size_t at = from;; ++at) {
      const size_t kind =
          at < text.size() ? kinds_[static_cast<unsigned char>(text[at])] : kEndKind;
      const uint32_t step = steps_[row + kind];
      if ((step & kIsMatch) != 0) end = at;
      if ((step & kStops) != 0) return (step & kIsUndecided) != 0 ? std::string_view::npos : end;
      row = step >> kFlagBits;
    }
  }

 private:
  // Of a step: a match ends before the character; nothing longer matches; it is not known.
  static constexpr uint32_t kIsMatch = 1;
  static constexpr uint32_t kStops = 2;
  static constexpr uint32_t kIsUndecided = 4;
  static constexpr int kFlagBits = 3;
  // Kinds of characters: the end of the text, all that are not ASCII, and those that atoms tell
  // apart.
  static constexpr size_t kEndKind = 0;
  static constexpr size_t kOtherKind = 1;

  class Parser;
  class Program;
  class Builder;

  std::array<uint8_t, 256> kinds_{};
  // By state, then by kind: where the row of the next state begins, and flags. The first row is the
  // first state's.
  std::vector<uint32_t> steps_;
};

}  // namespace strata::text
