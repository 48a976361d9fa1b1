// SPDX-License-Identifier: Apache-2.0
#include "engine/text/text_bert.h"

#include <utf8proc.h>

#include <algorithm>
#include <cctype>
#include <span>

#include "engine/text/text_unicode.h"

namespace strata::text {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};

// Ranges whose characters of the category are newer than Unicode 8 (marks of all kinds: 9). They
// also hold characters of other categories.
constexpr Range kNewControls[] = {{0x0890, 0x08E2}, {0x110CD, 0x1343F}};
constexpr Range kNewAccents[] = {
    {0x07FD, 0x07FD},   {0x0898, 0x08E1},   {0x09FE, 0x09FE},   {0x0AFA, 0x0AFF},
    {0x0B55, 0x0B55},   {0x0C04, 0x0C3C},   {0x0D00, 0x0D00},   {0x0D3B, 0x0D3C},
    {0x0D81, 0x0D81},   {0x0EBA, 0x0EBA},   {0x0ECE, 0x0ECE},   {0x180F, 0x1886},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFB},   {0xA82C, 0xA82C},   {0xA8C5, 0xA8C5},
    {0xA8FF, 0xA8FF},   {0xA9BD, 0xA9BD},   {0x10D24, 0x10F85}, {0x11070, 0x11074},
    {0x110C2, 0x110C2}, {0x111C9, 0x111C9}, {0x111CF, 0x111CF}, {0x1123E, 0x11241},
    {0x1133B, 0x1133B}, {0x11438, 0x1145E}, {0x1182F, 0x13455}, {0x16F4F, 0x16F4F},
    {0x16FE4, 0x16FE4}, {0x1CF00, 0x1CF46}, {0x1E000, 0x1E4EF}, {0x1E944, 0x1E94A}};
constexpr Range kNewMarks[] = {
    {0x07FD, 0x07FD},   {0x0898, 0x08D3},   {0x09FE, 0x09FE},   {0x0AFA, 0x0AFF},
    {0x0B55, 0x0B55},   {0x0C04, 0x0C3C},   {0x0CF3, 0x0D00},   {0x0D3B, 0x0D3C},
    {0x0D81, 0x0D81},   {0x0EBA, 0x0EBA},   {0x0ECE, 0x0ECE},   {0x1715, 0x1715},
    {0x180F, 0x180F},   {0x1ABF, 0x1ACE},   {0x1CF7, 0x1CF7},   {0x1DF6, 0x1DFA},
    {0xA82C, 0xA82C},   {0xA8FF, 0xA8FF},   {0x10D24, 0x10F85}, {0x11070, 0x11074},
    {0x110C2, 0x110C2}, {0x11145, 0x11146}, {0x111C9, 0x111C9}, {0x111CE, 0x111CF},
    {0x11241, 0x11241}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x1182C, 0x11A99},
    {0x11D31, 0x13455}, {0x16F4F, 0x16F4F}, {0x16F7F, 0x16F87}, {0x16FE4, 0x16FF1},
    {0x1CF00, 0x1CF46}, {0x1E08F, 0x1E4EF}};
constexpr Range kNewPunctuation[] = {{0x061D, 0x061D},   {0x09FD, 0x0A76},   {0x0C77, 0x0C84},
                                     {0x1B7D, 0x1B7E},   {0x2E43, 0x2E5D},   {0x10EAD, 0x10F89},
                                     {0x1144B, 0x1145D}, {0x11660, 0x116B9}, {0x1183B, 0x11FFF},
                                     {0x12FF1, 0x12FF2}, {0x16E97, 0x16FE2}, {0x1E95E, 0x1E95F}};
constexpr Range kIdeographs[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                 {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                                 {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};

bool is_in(std::span<const Range> ranges, uint32_t c) {
  const auto range = std::lower_bound(ranges.begin(), ranges.end(), c,
                                      [](const Range& one, uint32_t v) { return one.last < v; });
  return range != ranges.end() && range->first <= c;
}

utf8proc_category_t category(uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_control(uint32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
      return c != '\t' && c != '\n' && c != '\r';
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
      return !is_in(kNewControls, c);
    default:
      return false;
  }
}

bool is_accent(uint32_t c) {
  if (c == 0x1734) return true;  // its category has changed
  return category(c) == UTF8PROC_CATEGORY_MN && !is_in(kNewAccents, c);
}

bool is_mark(uint32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return !is_in(kNewMarks, c);
    default:
      return c == 0x1CF2 || c == 0x1CF3;  // their category has changed
  }
}

// Calls use(character, bytes) for each character, with '\0' to '\x7F' as they are.
template <class Use>
void for_each_character(std::string_view text, Use use) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text[at]);
    use(code_point_at(text, at), text.substr(at, length));
    at += length;
  }
}

template <class Is>
std::string without(std::string_view text, Is is) {
  std::string result;
  result.reserve(text.size());
  for_each_character(text, [&](uint32_t c, std::string_view bytes) {
    if (c < 0x80 || !is(c)) result += bytes;
  });
  return result;
}

}  // namespace

std::string without_controls(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for_each_character(text, [&](uint32_t c, std::string_view bytes) {
    if (c > ' ' && c < 0x7F) {
      result += bytes;
    } else if (c != 0 && c != 0xFFFD && !is_control(c)) {
      result += is_white_space(c) ? " " : bytes;
    }
  });
  return result;
}

std::string with_spaced_ideographs(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for_each_character(text, [&](uint32_t c, std::string_view bytes) {
    const bool is_spaced = c >= 0x3400 && is_in(kIdeographs, c);
    if (is_spaced) result += ' ';
    result += bytes;
    if (is_spaced) result += ' ';
  });
  return result;
}

std::string without_accents(std::string_view text) {
  return without(text, is_accent);
}

std::string without_marks(std::string_view text) {
  return without(text, is_mark);
}

std::string without_nmt_controls(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for_each_character(text, [&](uint32_t c, std::string_view bytes) {
    const bool is_space = c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == 0x1680 ||
                          (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 ||
                          c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
    const bool is_removed = (c >= 1 && c < ' ') || c == 0x7F || c == 0x8F || c == 0x9F;
    if (is_space) result += ' ';
    if (!is_space && !is_removed) result += bytes;
  });
  return result;
}

bool is_punctuation(uint32_t c) {
  if (c < 0x80) return std::ispunct(static_cast<int>(c)) != 0;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return !is_in(kNewPunctuation, c);
    default:
      return c == 0x166D || c == 0x111C9;  // their category has changed
  }
}

}  // namespace strata::text
