// SPDX-License-Identifier: Apache-2.0
#include "engine/text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <queue>

#include "engine/base/error.h"
#include "engine/text/text_unicode.h"

namespace strata::text {
namespace {

constexpr uint64_t kNoPair = ~uint64_t{0};
constexpr size_t kShortSymbols = 24;  // below it a scan beats a heap
constexpr uint32_t kTableCharacters = 0x10000;
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

uint64_t slot_of(uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15u;
  return pair ^ (pair >> 29);
}

}  // namespace

BpeModel::BpeModel(ModelDefinition definition)
    : TokenModel(definition), byte_tokens_(vocabulary()), byte_fallback_(definition.byte_fallback) {
  auto& rules = std::get<BpeRules>(definition.rules);
  fuse_unknown_ = rules.fuse_unknown;
  ignore_merges_ = rules.ignore_merges;
  if (!definition.unknown_token.empty()) {
    unknown_id_ = vocabulary().unknown_id(definition.unknown_token);
  }
  for (int c = 0; c < 128; ++c) {
    ascii_ids_.push_back(vocabulary().id_of(std::string(1, static_cast<char>(c))));
  }
  add_merges(rules);
  add_neighbours();
}

void BpeModel::add_merges(BpeRules& rules) {
  merges_.assign(std::bit_ceil(rules.merges.size() * 2 + 1), Merge{kNoPair, 0, 0});
  const uint64_t mask = merges_.size() - 1;
  for (size_t index = 0; !rules.merges.empty(); rules.merges.pop_front()) {
    const auto& [left, right] = rules.merges.front();
    const int32_t left_id = vocabulary().id_of(left);
    const int32_t right_id = vocabulary().id_of(right);
    const int32_t joined_id = vocabulary().id_of(left + right);
    if (left_id < 0 || right_id < 0 || joined_id < 0) {
      throw bad_vocabulary(
          fmt::format("merge {} ('{}' '{}')", index, left, right),
          fmt::format("'{}' is not in the vocabulary", left_id < 0    ? left
                                                       : right_id < 0 ? right
                                                                      : left + right));
    }
    const uint64_t pair = pair_of(left_id, right_id);
    uint64_t slot = slot_of(pair) & mask;
    while (merges_[slot].pair != kNoPair && merges_[slot].pair != pair) slot = (slot + 1) & mask;
    const int32_t rank = rules.ranks.empty() ? static_cast<int32_t>(index) : rules.ranks[index];
    merges_[slot] = {pair, rank, joined_id};  // of a merge listed twice, the later rank counts
    ++index;
  }
}

void BpeModel::add_neighbours() {
  std::vector<uint64_t> pairs;
  const auto sort_pairs = [&] {
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  };
  for (const Merge& merge : merges_) {
    if (merge.pair == kNoPair) continue;
    const std::string& token = *vocabulary().token_of(merge.id);
    for (size_t at = 0; at < token.size();) {
      const size_t next = at + utf8_length(token[at]);
      if (next < token.size()) {
        pairs.push_back(uint64_t{code_point_at(token, at)} << 32 | code_point_at(token, next));
      }
      at = next;
    }
    if (pairs.size() > (size_t{1} << 20)) sort_pairs();
  }
  sort_pairs();
  ascii_neighbours_.assign(128 * 128, 0);
  neighbours_.assign(std::bit_ceil(pairs.size() * 2 + 1), kNoPair);
  const uint64_t mask = neighbours_.size() - 1;
  for (const uint64_t pair : pairs) {
    const uint64_t left = pair >> 32;
    const uint64_t right = pair & 0xFFFFFFFFu;
    if (left < 128 && right < 128) ascii_neighbours_[left * 128 + right] = 1;
    uint64_t slot = slot_of(pair) & mask;
    while (neighbours_[slot] != kNoPair) slot = (slot + 1) & mask;
    neighbours_[slot] = pair;
  }
  is_token_.assign(kTableCharacters, false);
  for (int32_t id = 0; id <= vocabulary().id_max(); ++id) {
    const std::string* token = vocabulary().token_of(id);
    if (token == nullptr || token->empty() || utf8_length(token->front()) != token->size()) {
      continue;
    }
    const uint32_t character = code_point_at(*token, 0);
    if (character < kTableCharacters) is_token_[character] = true;
  }
}

int64_t BpeModel::bytes() const {
  return vocabulary().bytes() + static_cast<int64_t>(merges_.capacity() * sizeof(Merge) +
                                                     neighbours_.capacity() * sizeof(uint64_t));
}

bool BpeModel::is_known(uint32_t code_point, std::string_view character) const {
  return code_point < kTableCharacters ? is_token_[code_point] : vocabulary().id_of(character) >= 0;
}

bool BpeModel::are_neighbours(uint64_t pair) const {
  const uint64_t mask = neighbours_.size() - 1;
  uint64_t slot = slot_of(pair) & mask;
  while (neighbours_[slot] != kNoPair && neighbours_[slot] != pair) slot = (slot + 1) & mask;
  return neighbours_[slot] == pair;
}

bool BpeModel::may_join(std::string_view left, std::string_view right) const {
  if (left.size() == 1 && right.size() == 1) {
    const auto row = static_cast<uint8_t>(left[0]);
    const auto column = static_cast<uint8_t>(right[0]);
    if (ascii_ids_[row] < 0 || ascii_ids_[column] < 0) return true;
    return ascii_neighbours_[size_t{row} * 128 + column] != 0;
  }
  const uint32_t left_character = code_point_at(left, 0);
  const uint32_t right_character = code_point_at(right, 0);
  return are_neighbours(uint64_t{left_character} << 32 | right_character) ||
         !is_known(left_character, left) || !is_known(right_character, right);
}

size_t BpeModel::first_cut(std::string_view text) const {
  if (ignore_merges_ || text.empty()) return text.size();
  size_t left = 0;
  size_t left_bytes = utf8_length(text[0]);
  while (left + left_bytes < text.size()) {
    const size_t right = left + left_bytes;
    const size_t right_bytes = utf8_length(text[right]);
    if (!may_join(text.substr(left, left_bytes), text.substr(right, right_bytes))) return right;
    left = right;
    left_bytes = right_bytes;
  }
  return text.size();
}

const BpeModel::Merge* BpeModel::find_merge(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  const uint64_t mask = merges_.size() - 1;
  uint64_t slot = slot_of(pair) & mask;
  while (merges_[slot].pair != kNoPair) {
    if (merges_[slot].pair == pair) return &merges_[slot];
    slot = (slot + 1) & mask;
  }
  return nullptr;
}

void BpeModel::encode(std::string_view text, std::vector<int32_t>* ids) const {
  if (ignore_merges_) {
    const int32_t whole = vocabulary().id_of(text);
    if (whole >= 0) {
      ids->push_back(whole);
      return;
    }
  }
  const size_t from = ids->size();
  to_symbols(text, ids);
  if (ids->size() - from <= kShortSymbols)
    merge_short(ids, from);
  else
    merge_long(ids, from);
}

// An unknown token waits in `unknown` while it may still grow, so byte tokens of a later character
// are appended before it. Files made for Hugging Face tokenizers rely on this order.
void BpeModel::to_symbols(std::string_view text, std::vector<int32_t>* ids) const {
  bool unknown = false;
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text[at]);
    const std::string_view character = text.substr(at, length);
    at += length;
    const int32_t id = length == 1 ? ascii_ids_[static_cast<uint8_t>(character[0])]
                                   : vocabulary().id_of(character);
    if (id >= 0) {
      if (unknown) ids->push_back(unknown_id_);
      unknown = false;
      ids->push_back(id);
      continue;
    }
    if (byte_fallback_ && byte_tokens_.append(character, ids)) continue;
    if (unknown_id_ < 0) continue;
    if (unknown && !fuse_unknown_) ids->push_back(unknown_id_);
    unknown = true;
  }
  if (unknown) ids->push_back(unknown_id_);
}

void BpeModel::merge_short(std::vector<int32_t>* ids, size_t from) const {
  int32_t* symbols = ids->data() + from;
  size_t count = ids->size() - from;
  int32_t ranks[kShortSymbols];   // rank of the pair that starts at each symbol
  int32_t joined[kShortSymbols];  // id of the token that the pair becomes
  const auto look = [&](size_t k) {
    const Merge* merge = k + 1 < count ? find_merge(symbols[k], symbols[k + 1]) : nullptr;
    ranks[k] = merge == nullptr ? kNoRank : merge->rank;
    joined[k] = merge == nullptr ? -1 : merge->id;
  };
  for (size_t k = 0; k < count; ++k) look(k);
  while (count > 1) {
    const size_t best = static_cast<size_t>(std::min_element(ranks, ranks + count) - ranks);
    if (ranks[best] == kNoRank) break;
    symbols[best] = joined[best];
    for (size_t k = best + 1; k + 1 < count; ++k) {
      symbols[k] = symbols[k + 1];
      ranks[k] = ranks[k + 1];
      joined[k] = joined[k + 1];
    }
    --count;
    look(best);
    if (best > 0) look(best - 1);
  }
  ids->resize(from + count);
}

void BpeModel::merge_long(std::vector<int32_t>* ids, size_t from) const {
  struct Candidate {
    int32_t rank;
    int32_t position;
    int32_t left;
    int32_t right;
    int32_t id;
    bool operator<(const Candidate& other) const {  // the queue's top is the largest
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  if (ids->size() - from > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw Error(ErrorCode::kConfig,
                fmt::format("tokenize text: {} characters in one piece: more than "
                            "2^31 (cut the text into documents)",
                            ids->size() - from));
  }
  std::vector<Symbol> symbols(ids->size() - from);
  for (size_t k = 0; k < symbols.size(); ++k) {
    const auto at = static_cast<int32_t>(k);
    symbols[k] = {(*ids)[from + k], at - 1, k + 1 == symbols.size() ? -1 : at + 1};
  }
  std::priority_queue<Candidate> queue;
  const auto offer = [&](int32_t position) {
    if (position < 0) return;
    const Symbol& left = symbols[static_cast<size_t>(position)];
    if (left.next < 0) return;
    const int32_t right = symbols[static_cast<size_t>(left.next)].id;
    if (const Merge* merge = find_merge(left.id, right)) {
      queue.push({merge->rank, position, left.id, right, merge->id});
    }
  };
  for (size_t k = 0; k + 1 < symbols.size(); ++k) offer(static_cast<int32_t>(k));
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbols[static_cast<size_t>(top.position)];
    if (left.id != top.left || left.next < 0) continue;  // merged since it was queued
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (right.id != top.right) continue;
    left.id = top.id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = top.position;
    offer(left.previous);
    offer(top.position);
  }
  size_t out = from;
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) (*ids)[out++] = symbol.id;
  }
  ids->resize(out);
}

}  // namespace strata::text
