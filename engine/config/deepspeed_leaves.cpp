// SPDX-License-Identifier: Apache-2.0
#include "engine/config/deepspeed_leaves.h"

#include <fmt/format.h>

namespace strata::config {
namespace {

void flatten(const Json& value, const std::string& key, std::vector<Leaf>& leaves) {
  if (!value.is_object() || value.members().empty()) {
    leaves.push_back({key, &value});
    return;
  }
  for (const JsonMember& member : value.members()) {
    flatten(member.value, key.empty() ? member.name : key + "." + member.name, leaves);
  }
}

}  // namespace

std::vector<Leaf> leaves_of(const Json& root) {
  std::vector<Leaf> leaves;
  if (root.is_object() && root.members().empty()) return leaves;
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

}  // namespace strata::config
