// SPDX-License-Identifier: Apache-2.0
#include "engine/text/text_case.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "engine/text/text_unicode.h"

namespace strata::text {
namespace {

// Characters whose upper case is several characters (SpecialCasing.txt), without those from U+1F80
// to U+1FAF, which are a letter and an iota.
struct Expansion {
  uint32_t from;
  std::array<uint32_t, 3> to;  // may end in zeros
};
constexpr std::array<Expansion, 54> kUpperExpansions = {{
    {0x00DF, {0x53, 0x53}},          {0x0149, {0x2BC, 0x4E}},
    {0x01F0, {0x4A, 0x30C}},         {0x0390, {0x399, 0x308, 0x301}},
    {0x03B0, {0x3A5, 0x308, 0x301}}, {0x0587, {0x535, 0x552}},
    {0x1E96, {0x48, 0x331}},         {0x1E97, {0x54, 0x308}},
    {0x1E98, {0x57, 0x30A}},         {0x1E99, {0x59, 0x30A}},
    {0x1E9A, {0x41, 0x2BE}},         {0x1F50, {0x3A5, 0x313}},
    {0x1F52, {0x3A5, 0x313, 0x300}}, {0x1F54, {0x3A5, 0x313, 0x301}},
    {0x1F56, {0x3A5, 0x313, 0x342}}, {0x1FB2, {0x1FBA, 0x399}},
    {0x1FB3, {0x391, 0x399}},        {0x1FB4, {0x386, 0x399}},
    {0x1FB6, {0x391, 0x342}},        {0x1FB7, {0x391, 0x342, 0x399}},
    {0x1FBC, {0x391, 0x399}},        {0x1FC2, {0x1FCA, 0x399}},
    {0x1FC3, {0x397, 0x399}},        {0x1FC4, {0x389, 0x399}},
    {0x1FC6, {0x397, 0x342}},        {0x1FC7, {0x397, 0x342, 0x399}},
    {0x1FCC, {0x397, 0x399}},        {0x1FD2, {0x399, 0x308, 0x300}},
    {0x1FD3, {0x399, 0x308, 0x301}}, {0x1FD6, {0x399, 0x342}},
    {0x1FD7, {0x399, 0x308, 0x342}}, {0x1FE2, {0x3A5, 0x308, 0x300}},
    {0x1FE3, {0x3A5, 0x308, 0x301}}, {0x1FE4, {0x3A1, 0x313}},
    {0x1FE6, {0x3A5, 0x342}},        {0x1FE7, {0x3A5, 0x308, 0x342}},
    {0x1FF2, {0x1FFA, 0x399}},       {0x1FF3, {0x3A9, 0x399}},
    {0x1FF4, {0x38F, 0x399}},        {0x1FF6, {0x3A9, 0x342}},
    {0x1FF7, {0x3A9, 0x342, 0x399}}, {0x1FFC, {0x3A9, 0x399}},
    {0xFB00, {0x46, 0x46}},          {0xFB01, {0x46, 0x49}},
    {0xFB02, {0x46, 0x4C}},          {0xFB03, {0x46, 0x46, 0x49}},
    {0xFB04, {0x46, 0x46, 0x4C}},    {0xFB05, {0x53, 0x54}},
    {0xFB06, {0x53, 0x54}},          {0xFB13, {0x544, 0x546}},
    {0xFB14, {0x544, 0x535}},        {0xFB15, {0x544, 0x53B}},
    {0xFB16, {0x54E, 0x546}},        {0xFB17, {0x544, 0x53D}},
}};
constexpr uint32_t kIota = 0x399;
constexpr uint32_t kCombiningIota = 0x345;
constexpr uint32_t kCapitalSigma = 0x3A3;

uint32_t simple_lower(uint32_t c) {
  return static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}
uint32_t simple_upper(uint32_t c) {
  return static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
uint32_t simple_title(uint32_t c) {
  return static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}
utf8proc_category_t category_of(uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

const Expansion* find_expansion(uint32_t c) {
  const auto* found =
      std::lower_bound(kUpperExpansions.begin(), kUpperExpansions.end(), c,
                       [](const Expansion& one, uint32_t v) { return one.from < v; });
  return found != kUpperExpansions.end() && found->from == c ? found : nullptr;
}

void append_upper(uint32_t c, std::string* out) {
  if (c >= 0x1F80 && c <= 0x1FAF) {
    constexpr std::array<uint32_t, 3> kFirst = {0x1F08, 0x1F28, 0x1F68};
    append_code_point(kFirst[(c - 0x1F80) / 16] + c % 8, out);
    append_code_point(kIota, out);
    return;
  }
  if (const Expansion* expansion = find_expansion(c)) {
    for (const uint32_t to : expansion->to) {
      if (to != 0) append_code_point(to, out);
    }
    return;
  }
  append_code_point(simple_upper(c), out);
}

void append_title(uint32_t c, std::string* out) {
  const Expansion* expansion = find_expansion(c);
  const bool is_title = category_of(simple_title(c)) == UTF8PROC_CATEGORY_LT;
  if (expansion == nullptr || is_title) {
    append_code_point(simple_title(c), out);
    return;
  }
  append_code_point(expansion->to[0], out);
  for (size_t k = 1; k < expansion->to.size() && expansion->to[k] != 0; ++k) {
    const uint32_t to = expansion->to[k];
    const bool stays = c == 0x149;
    append_code_point(stays ? to : to == kIota ? kCombiningIota : simple_lower(to), out);
  }
}

bool is_cased(uint32_t c) {
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
      return true;
    default:
      return simple_lower(c) != c || simple_upper(c) != c || c == 0xAA || c == 0xBA ||
             (c >= 0x2B0 && c <= 0x2B8) || c == 0x2C0 || c == 0x2C1 || (c >= 0x2E0 && c <= 0x2E4);
  }
}

bool is_case_ignorable(uint32_t c) {
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x387 || c == 0x55F ||
             c == 0x5F4 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027;
  }
}

// A capital sigma ends a word when a character with case is before it and none behind it.
bool is_final_sigma(std::string_view text, size_t at) {
  bool has_before = false;
  for (size_t k = at; k > 0;) {
    k = utf8_start(text, k - 1);
    const uint32_t c = code_point_at(text, k);
    if (is_case_ignorable(c)) continue;
    has_before = is_cased(c);
    break;
  }
  if (!has_before) return false;
  for (size_t k = at + 2; k < text.size(); k += utf8_length(text[k])) {
    const uint32_t c = code_point_at(text, k);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

void append_lower(std::string_view text, size_t at, uint32_t c, std::string* out) {
  if (c == 0x130) {
    *out += "i\xCC\x87";
  } else if (c == kCapitalSigma) {
    append_code_point(is_final_sigma(text, at) ? 0x3C2 : 0x3C3, out);
  } else {
    append_code_point(simple_lower(c), out);
  }
}

}  // namespace

std::string to_upper_full(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    append_upper(code_point_at(text, at), &out);
  }
  return out;
}

std::string to_lower_full(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    append_lower(text, at, code_point_at(text, at), &out);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    const uint32_t c = code_point_at(text, at);
    if (at == 0) {
      append_title(c, &out);
    } else {
      append_lower(text, at, c, &out);
    }
  }
  return out;
}

std::string to_title_full(std::string_view text) {
  std::string out;
  bool within = false;
  for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    const uint32_t c = code_point_at(text, at);
    if (within) {
      append_lower(text, at, c, &out);
    } else {
      append_title(c, &out);
    }
    within = is_cased(c);
  }
  return out;
}

bool is_upper_case(uint32_t c) {
  return category_of(c) == UTF8PROC_CATEGORY_LU;
}

bool is_lower_case(uint32_t c) {
  return category_of(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA;
}

bool is_letter(uint32_t c) {
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal_digit(uint32_t c) {
  return category_of(c) == UTF8PROC_CATEGORY_ND;
}

bool is_printable(uint32_t c) {
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

}  // namespace strata::text
