// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer_trie.h"

#include <fmt/format.h>

#include "engine/base/error.h"

namespace strata::text {

void TokenTrie::insert(uint64_t entry) {
  const uint64_t mask = slots_.size() - 1;
  uint64_t slot = slot_of(entry >> 28) & mask;
  while (slots_[slot] != 0) slot = (slot + 1) & mask;
  slots_[slot] = entry;
}

void TokenTrie::grow() {
  std::vector<uint64_t> old(slots_.size() * 2);
  old.swap(slots_);
  for (const uint64_t entry : old) {
    if (entry != 0) insert(entry);
  }
}

void TokenTrie::add(std::string_view content, int32_t value) {
  if (content.empty()) return;
  bool& starts = starts_[static_cast<unsigned char>(content[0])];
  if (!starts) ++start_count_;
  starts = true;
  last_start_ = content[0];
  uint32_t node = kRoot;
  for (const char c : content) {
    if (walk(&node, c)) continue;
    const uint64_t child = values_.size();
    if (child > kNodeMax) {
      throw Error(ErrorCode::kConfig,
                  fmt::format("read vocabulary: its tokens have more than {} different beginnings "
                              "(is the file damaged? fetch it again)",
                              kNodeMax));
    }
    if (++edge_count_ * 3 > slots_.size() * 2) grow();
    insert(uint64_t{node} << 36 | uint64_t{static_cast<unsigned char>(c)} << 28 | child);
    values_.push_back(kNoValue);
    node = static_cast<uint32_t>(child);
  }
  if (values_[node] == kNoValue) values_[node] = value;
}

TokenTrie::Match TokenTrie::longest_prefix(std::string_view text) const {
  Match match = {0, 0, 0};
  uint32_t node = kRoot;
  for (size_t at = 0; at < text.size() && walk(&node, text[at]); ++at) {
    if (value_at(node) != kNoValue) match = {0, at + 1, static_cast<size_t>(value_at(node))};
  }
  return match;
}

// The next place where a string may start; npos when there is none.
size_t TokenTrie::next_start(std::string_view text, size_t from) const {
  if (start_count_ == 1) return text.find(last_start_, from);
  while (from < text.size() && !starts_[static_cast<unsigned char>(text[from])]) ++from;
  return from < text.size() ? from : std::string_view::npos;
}

bool TokenTrie::find(std::string_view text, size_t from, Match* match) const {
  if (is_empty()) return false;
  for (size_t begin = next_start(text, from); begin != std::string_view::npos;
       begin = next_start(text, begin + 1)) {
    *match = longest_prefix(text.substr(begin));
    if (match->end == 0) continue;
    match->begin = begin;
    match->end += begin;
    return true;
  }
  return false;
}

int64_t TokenTrie::bytes() const {
  return static_cast<int64_t>(slots_.capacity() * sizeof(slots_[0]) +
                              values_.capacity() * sizeof(values_[0]));
}

}  // namespace strata::text
