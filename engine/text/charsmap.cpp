// SPDX-License-Identifier: Apache-2.0
#include "engine/text/charsmap.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <cstring>

#include "engine/base/error.h"
#include "engine/text/text_unicode.h"

namespace strata::text {
namespace {

constexpr size_t kClusterBytesMax = 5;  // longer clusters are replaced character by character

Error bad_charsmap(const std::string& cause) {
  return Error(ErrorCode::kConfig, "read character map: " + cause);
}

// A unit of the double array: a label, an offset to the units below, and whether a value is there;
// or a value.
bool is_value(uint32_t unit) {
  return (unit >> 31) != 0;
}
uint32_t label_of(uint32_t unit) {
  return unit & (1u << 31 | 0xFFu);
}
bool has_value(uint32_t unit) {
  return (unit >> 8 & 1u) != 0;
}
size_t offset_of(uint32_t unit) {
  return size_t{unit >> 10} << ((unit & 1u << 9) >> 6);
}
size_t value_of(uint32_t unit) {
  return unit & 0x7FFFFFFFu;
}

// The end of the grapheme cluster that starts at a place.
size_t cluster_end(std::string_view text, size_t at) {
  utf8proc_int32_t state = 0;
  auto last = static_cast<utf8proc_int32_t>(code_point_at(text, at));
  at += utf8_length(text[at]);
  while (at < text.size()) {
    const auto next = static_cast<utf8proc_int32_t>(code_point_at(text, at));
    if (utf8proc_grapheme_break_stateful(last, next, &state)) break;
    last = next;
    at += utf8_length(text[at]);
  }
  return at;
}

}  // namespace

Charsmap::Charsmap(std::string_view blob) {
  uint32_t array_bytes = 0;
  if (blob.size() < sizeof array_bytes) {
    throw bad_charsmap(fmt::format("{} bytes are too few", blob.size()));
  }
  std::memcpy(&array_bytes, blob.data(), sizeof array_bytes);
  blob.remove_prefix(sizeof array_bytes);
  if (array_bytes > blob.size() || array_bytes % sizeof(uint32_t) != 0 || array_bytes == 0) {
    throw bad_charsmap(fmt::format("its table has {} bytes, of {}", array_bytes, blob.size()));
  }
  units_.resize(array_bytes / sizeof(uint32_t));
  std::memcpy(units_.data(), blob.data(), array_bytes);
  texts_ = blob.substr(array_bytes);
  if (find_invalid_utf8(texts_) != std::string::npos) {
    throw bad_charsmap("its replacements are not UTF-8");
  }
  for (const uint32_t unit : units_) {
    if (!is_value(unit)) continue;
    if (value_of(unit) >= texts_.size() || is_continuation(texts_[value_of(unit)])) {
      throw bad_charsmap(fmt::format("a replacement starts at byte {} of {}, not at a character",
                                     value_of(unit), texts_.size()));
    }
  }
  for (int c = 0; c < 128; ++c) {
    const char character = static_cast<char>(c);
    plain_[static_cast<size_t>(c)] =
        c != '\r' && shortest(std::string_view(&character, 1)).bytes == 0;
  }
}

// Calls on_rule(bytes, offset of the replacement) for each beginning of the text that has a rule,
// until it returns false.
template <class OnRule>
void Charsmap::search(std::string_view text, OnRule on_rule) const {
  if (units_.empty()) return;
  size_t node = offset_of(units_[0]);
  for (size_t k = 0; k < text.size() && text[k] != '\0'; ++k) {
    const auto byte = static_cast<unsigned char>(text[k]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) return;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_value(unit)) continue;
    if (node >= units_.size() || !is_value(units_[node])) return;
    if (!on_rule(k + 1, value_of(units_[node]))) return;
  }
}

Charsmap::Rule Charsmap::longest(std::string_view text) const {
  size_t longest_bytes = 0;
  size_t longest_at = 0;
  search(text, [&](size_t bytes, size_t at) {
    if (bytes < text.size() && is_continuation(text[bytes])) return true;
    longest_bytes = bytes;
    longest_at = at;
    return true;
  });
  return longest_bytes == 0 ? Rule() : Rule{longest_bytes, texts_.c_str() + longest_at};
}

Charsmap::Rule Charsmap::shortest(std::string_view text) const {
  Rule rule;
  search(text, [&](size_t bytes, size_t at) {
    rule = {bytes, texts_.c_str() + at};
    return false;
  });
  return rule;
}

std::string Charsmap::replace_clusters(std::string_view text, AddedBytes& added) const {
  std::string result;
  result.reserve(text.size());
  const auto append = [&](std::string_view replacement) {
    added.add(replacement.size());
    result += replacement;
  };
  const auto is_ascii = [&](size_t at) { return static_cast<unsigned char>(text[at]) < 0x80; };
  for (size_t at = 0; at < text.size();) {
    if (is_ascii(at) && plain_[static_cast<size_t>(text[at])] &&
        (at + 1 == text.size() || is_ascii(at + 1))) {
      result += text[at++];
      continue;
    }
    const size_t end = cluster_end(text, at);
    const std::string_view cluster = text.substr(at, end - at);
    const Rule rule = cluster.size() <= kClusterBytesMax ? shortest(cluster) : Rule();
    if (rule.bytes > 0) {
      append(rule.replacement);
      at = end;
      continue;
    }
    while (at < end) {
      const std::string_view character = text.substr(at, utf8_length(text[at]));
      const Rule own = shortest(character);
      append(own.bytes > 0 ? own.replacement : character);
      at += character.size();
    }
  }
  return result;
}

std::string decode_base64(std::string_view text) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<uint8_t, 256> values;
  values.fill(64);
  for (size_t k = 0; k < kDigits.size(); ++k) {
    values[static_cast<unsigned char>(kDigits[k])] = static_cast<uint8_t>(k);
  }
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int count = 0;
  for (size_t k = 0; k < text.size(); ++k) {
    const uint8_t value = values[static_cast<unsigned char>(text[k])];
    if (value == 64) throw bad_charsmap(fmt::format("byte {} of its text is not base64", k));
    bits = bits << 6 | value;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFFu);
  }
  return bytes;
}

}  // namespace strata::text
