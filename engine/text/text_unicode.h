// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace strata::text {

// Byte offset of the first byte that is not part of well-formed UTF-8; npos when all of it is.
size_t find_invalid_utf8(std::string_view text);

// Replaces every maximal ill-formed subsequence by one U+FFFD, as the WHATWG decoder does.
std::string replace_invalid_utf8(std::string_view bytes);

// Length in bytes of the sequence that this lead byte starts; the text must be well-formed.
inline size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// True for the second and later bytes of a character.
inline bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0u) == 0x80u;
}

// The offset at which the character of byte `at` starts.
inline size_t utf8_start(std::string_view text, size_t at) {
  while (at > 0 && is_continuation(text[at])) --at;
  return at;
}

// The code point that starts at `offset` of well-formed text.
inline uint32_t code_point_at(std::string_view text, size_t offset) {
  const auto bits = [&](size_t at, uint32_t mask) {
    return static_cast<unsigned char>(text[offset + at]) & mask;
  };
  switch (utf8_length(text[offset])) {
    case 1:
      return bits(0, 0x7F);
    case 2:
      return bits(0, 0x1F) << 6 | bits(1, 0x3F);
    case 3:
      return bits(0, 0x0F) << 12 | bits(1, 0x3F) << 6 | bits(2, 0x3F);
    default:
      return bits(0, 0x07) << 18 | bits(1, 0x3F) << 12 | bits(2, 0x3F) << 6 | bits(3, 0x3F);
  }
}
void append_code_point(uint32_t code_point, std::string* text);

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// `text` must be well-formed UTF-8.
std::string to_unicode_form(UnicodeForm form, std::string_view text);
std::string to_lower_case(std::string_view text);

bool is_white_space(uint32_t code_point);  // the Unicode property White_Space
bool is_word(uint32_t code_point);         // letter, mark, decimal or letter number, connector

}  // namespace strata::text
