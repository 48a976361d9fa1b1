// SPDX-License-Identifier: Apache-2.0
#include "engine/config/deepspeed_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace strata::config {
namespace {

void flatten(const Json& value, const std::string& key, std::vector<Leaf>& leaves) {
  if (!value.is_object() || value.members().empty()) {
    if (!key.empty()) leaves.push_back({key, &value});
    return;
  }
  for (const JsonMember& member : value.members()) {
    flatten(member.value, key.empty() ? member.name : key + "." + member.name, leaves);
  }
}

}  // namespace

std::string without_comments(std::string_view text) {
  std::string out(text);
  size_t comma = std::string::npos;  // the last comma, if only blanks follow it
  for (size_t at = 0; at < out.size(); ++at) {
    const char letter = out[at];
    const std::string_view two = text.substr(at, 2);
    if (letter == '"') {
      for (++at; at < out.size() && out[at] != '"'; ++at) at += out[at] == '\\' ? 1 : 0;
      comma = std::string::npos;
    } else if (letter == '#' || two == "//" || two == "/*") {
      const bool block = two == "/*";
      size_t end = block ? text.find("*/", at + 2) : text.find('\n', at);
      end = end == std::string_view::npos ? out.size() : end + (block ? 2 : 0);
      for (; at < end; ++at) out[at] = out[at] == '\n' ? '\n' : ' ';
      --at;
    } else if (letter == ',') {
      comma = at;
    } else if (letter == '}' || letter == ']') {
      if (comma != std::string::npos) out[comma] = ' ';
      comma = std::string::npos;
    } else if (letter != ' ' && letter != '\t' && letter != '\n' && letter != '\r') {
      comma = std::string::npos;
    }
  }
  return out;
}

std::vector<Leaf> leaves_of(const Json& root) {
  std::vector<Leaf> leaves;
  flatten(root, "", leaves);
  return leaves;
}

std::string text_of(const Json& value) {
  if (value.is_string()) return value.string();
  if (const auto whole = value.int64()) return fmt::format("{}", *whole);  // 5e8 too
  return value.dump();
}

std::vector<std::string> texts_of(const Json& value) {
  if (!value.is_array()) return {text_of(value)};
  std::vector<std::string> texts;
  for (const Json& item : value.items()) texts.push_back(text_of(item));
  return texts;
}

std::string lower_case(std::string text) {
  for (char& letter : text) letter = letter >= 'A' && letter <= 'Z' ? letter + ('a' - 'A') : letter;
  return text;
}

std::optional<bool> bool_of(const Json& value) {
  if (const auto on = value.boolean()) return on;
  const std::string text = lower_case(text_of(value));
  constexpr std::array kTrue = {"1", "t", "true", "y", "yes", "on"};
  constexpr std::array kFalse = {"0", "f", "false", "n", "no", "off"};
  if (std::ranges::find(kTrue, text) != kTrue.end()) return true;
  if (std::ranges::find(kFalse, text) != kFalse.end()) return false;
  return std::nullopt;
}

bool is_off(const Json& value) {
  if (value.is_null() || (value.is_object() && value.members().empty())) return true;
  if (const auto on = bool_of(value)) return !*on;
  return value.is_string() && (value.string() == "none" || value.string().empty());
}

}  // namespace strata::config
