// SPDX-License-Identifier: Apache-2.0
#include "engine/text/text_unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "engine/base/check.h"

namespace strata::text {
namespace {

struct Sequence {
  size_t length;  // bytes read: the whole sequence, or its maximal ill-formed part
  bool valid;
};

// Follows table 3-7 of the Unicode Standard: which second byte may follow which lead byte.
Sequence read_sequence(const unsigned char* at, const unsigned char* end) {
  const unsigned char lead = *at;
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t k = 1; k < length; ++k) {
    if (at + k == end || at[k] < low || at[k] > high) return {k, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

const unsigned char* begin_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string map_run(UnicodeForm form, std::string_view run) {
  int options = UTF8PROC_STABLE;
  options |= form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc ? UTF8PROC_COMPOSE
                                                                     : UTF8PROC_DECOMPOSE;
  if (form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(begin_of(run), static_cast<utf8proc_ssize_t>(run.size()), &mapped,
                   static_cast<utf8proc_option_t>(options));
  STRATA_CHECK(length >= 0);
  std::string result(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
  std::free(mapped);
  return result;
}

struct CodePoints {
  uint32_t first;
  uint32_t last;
};

// Characters with a mapping or a combining class that is newer than Unicode 9. The `tokenizers`
// library, whose normalization is of that version, leaves them where and as they are.
constexpr CodePoints kNewer[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},
    {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x10781, 0x107BA}, {0x10D24, 0x10D27},
    {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193D, 0x1193E},
    {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
    {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97},
    {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F},
    {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
    {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};

bool is_newer(uint32_t c) {
  if (c < kNewer[0].first) return false;
  const auto after = std::upper_bound(
      std::begin(kNewer), std::end(kNewer), c,
      [](uint32_t point, const CodePoints& points) { return point < points.first; });
  return c <= std::prev(after)->last;
}

void append_mapped(UnicodeForm form, std::string_view run, std::string* result) {
  size_t done = 0;
  for (size_t at = 0, next = 0; at < run.size(); at = next) {
    next = at + utf8_length(run[at]);
    if (!is_newer(code_point_at(run, at))) continue;
    *result += map_run(form, run.substr(done, at - done));
    *result += run.substr(at, next - at);
    done = next;
  }
  *result += map_run(form, run.substr(done));
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  const unsigned char* begin = begin_of(text);
  const unsigned char* end = begin + text.size();
  const unsigned char* at = begin;
  while (at != end) {
    uint64_t word = 0;
    if (end - at >= 8 && (std::memcpy(&word, at, 8), (word & 0x8080808080808080u) == 0)) {
      at += 8;
      continue;
    }
    const Sequence sequence = read_sequence(at, end);
    if (!sequence.valid) return static_cast<size_t>(at - begin);
    at += sequence.length;
  }
  return std::string_view::npos;
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  const unsigned char* at = begin_of(bytes);
  const unsigned char* end = at + bytes.size();
  while (at != end) {
    const Sequence sequence = read_sequence(at, end);
    if (sequence.valid) {
      text.append(reinterpret_cast<const char*>(at), sequence.length);
    } else {
      text += "\xEF\xBF\xBD";
    }
    at += sequence.length;
  }
  return text;
}

void append_code_point(uint32_t code_point, std::string* text) {
  utf8proc_uint8_t buffer[4];
  const utf8proc_ssize_t length =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), buffer);
  text->append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(length));
}

// An ASCII character never combines with the character before it, so text may be cut before each of
// them. Runs of ASCII are copied; other text is mapped together with the ASCII character before it.
std::string to_unicode_form(UnicodeForm form, std::string_view text) {
  const auto is_ascii = [&](size_t k) { return static_cast<unsigned char>(text[k]) < 0x80; };
  std::string result;
  result.reserve(text.size());
  size_t at = 0;
  while (at < text.size()) {
    size_t end = at + 1;
    if (is_ascii(at) && (end == text.size() || is_ascii(end))) {
      while (end < text.size() && is_ascii(end) && (end + 1 == text.size() || is_ascii(end + 1))) {
        ++end;
      }
      result.append(text, at, end - at);
    } else {
      while (end < text.size() && !is_ascii(end)) ++end;
      append_mapped(form, text.substr(at, end - at), &result);
    }
    at = end;
  }
  return result;
}

std::string to_lower_case(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    const uint32_t code_point = code_point_at(text, at);
    if (code_point == 0x130) {  // the only lower-case mapping of more than one code point
      result += "i\xCC\x87";
      continue;
    }
    append_code_point(
        static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))),
        &result);
  }
  return result;
}

bool is_white_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word(uint32_t c) {
  const bool is_circled = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                          (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  if (c == 0x200C || c == 0x200D || is_circled) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

}  // namespace strata::text
