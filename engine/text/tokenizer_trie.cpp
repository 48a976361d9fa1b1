// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer_trie.h"

namespace strata::text {

void TokenTrie::add(std::string_view content, size_t value) {
  if (content.empty()) return;
  starts_[static_cast<unsigned char>(content[0])] = true;
  uint64_t node = 0;
  for (const char c : content) {
    const uint64_t edge = node << 8 | static_cast<unsigned char>(c);
    const auto [child, is_new] = children_.emplace(edge, static_cast<uint32_t>(values_.size()));
    if (is_new) values_.push_back(kNoValue);
    node = child->second;
  }
  if (values_[node] == kNoValue) values_[node] = value;
}

bool TokenTrie::find(std::string_view text, size_t from, Match* match) const {
  if (children_.empty()) return false;
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    bool is_found = false;
    uint64_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const auto child = children_.find(node << 8 | static_cast<unsigned char>(text[at]));
      if (child == children_.end()) break;
      node = child->second;
      if (values_[node] == kNoValue) continue;
      *match = {begin, at + 1, values_[node]};
      is_found = true;
    }
    if (is_found) return true;
  }
  return false;
}

}  // namespace strata::text
