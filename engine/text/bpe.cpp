// SPDX-License-Identifier: Apache-2.0
#include "engine/text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

#include "engine/base/error.h"
#include "engine/text/text_unicode.h"

namespace strata::text {
namespace {

constexpr uint64_t kNoPair = ~uint64_t{0};
constexpr size_t kShortSymbols = 24;  // below it a scan beats a heap
constexpr uint32_t kTableCharacters = 0x10000;
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

int32_t left_of(uint64_t pair) {
  return static_cast<int32_t>(pair >> 32);
}

int32_t right_of(uint64_t pair) {
  return static_cast<int32_t>(pair & 0xFFFFFFFFu);
}

}  // namespace

inline const BpeModel::Merge* BpeModel::find_merge(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  const uint64_t hash = spread(pair);
  const uint64_t bit = hash & (merge_filter_.size() * 64 - 1);
  if ((merge_filter_[bit / 64] >> bit % 64 & 1) == 0) return nullptr;
  const uint64_t mask = merges_.size() - 1;
  uint64_t slot = hash & mask;
  while (merges_[slot].pair != kNoPair) {
    if (merges_[slot].pair == pair) return &merges_[slot];
    slot = (slot + 1) & mask;
  }
  return nullptr;
}

BpeModel::BpeModel(ModelDefinition definition)
    : TokenModel(definition), byte_tokens_(vocabulary()), byte_fallback_(definition.byte_fallback) {
  auto& rules = std::get<BpeRules>(definition.rules);
  fuse_unknown_ = rules.fuse_unknown;
  ignore_merges_ = rules.ignore_merges;
  if (!definition.unknown_token.empty()) {
    unknown_id_ = vocabulary().unknown_id(definition.unknown_token);
  }
  add_merges(rules);
  add_characters();
  add_cuts();
}

void BpeModel::add_merges(BpeRules& rules) {
  constexpr size_t kFilterBits = 8;  // for each place of a merge
  merges_.assign(std::bit_ceil(rules.merges.size() * 2 + 1), Merge{kNoPair, 0, 0});
  merge_filter_.assign((merges_.size() * kFilterBits + 63) / 64, 0);
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
    uint64_t slot = spread(pair) & mask;
    while (merges_[slot].pair != kNoPair && merges_[slot].pair != pair) slot = (slot + 1) & mask;
    const int32_t rank = rules.ranks.empty() ? static_cast<int32_t>(index) : rules.ranks[index];
    const uint64_t bit = spread(pair) & (merge_filter_.size() * 64 - 1);
    merge_filter_[bit / 64] |= uint64_t{1} << bit % 64;
    merges_[slot] = {pair, rank, joined_id};  // of a merge listed twice, the later rank counts
    ++index;
  }
}

void BpeModel::add_characters() {
  character_ids_.assign(kTableCharacters, -1);
  for (int32_t id = 0; id <= vocabulary().id_max(); ++id) {
    const std::string* token = vocabulary().token_of(id);
    if (token == nullptr || token->empty() || utf8_length(token->front()) != token->size()) {
      continue;
    }
    const uint32_t character = code_point_at(*token, 0);
    if (character < kTableCharacters) character_ids_[character] = id;
  }
}

void BpeModel::add_cuts() {
  if (ignore_merges_) return;
  placeholders_.assign(static_cast<size_t>(vocabulary().id_max()) + 1, false);
  if (unknown_id_ >= 0) placeholders_[static_cast<size_t>(unknown_id_)] = true;
  bool has_all_bytes = byte_fallback_;
  for (const int32_t id : byte_tokens_.ids()) {
    has_all_bytes = has_all_bytes && id >= 0;
    if (byte_fallback_ && id >= 0) placeholders_[static_cast<size_t>(id)] = true;
  }
  bool joins = false;  // whether a placeholder is in a merge
  std::vector<BpeCuts::MergedToken> tokens;
  for (const Merge& merge : merges_) {
    if (merge.pair == kNoPair) continue;
    tokens.push_back({merge.id, merge.rank});
    for (const int32_t id : {left_of(merge.pair), right_of(merge.pair), merge.id}) {
      joins = joins || is_placeholder(id);
    }
  }
  cuts_.emplace(
      vocabulary(), character_ids_, tokens,
      BpeCuts::Rules{.bytes_stand_alone = has_all_bytes && !joins, .has_unsure_cuts = !joins});
  if (!joins) add_splits();
}

// Of tokens that several merges make, the last merge is not known.
void BpeModel::add_splits() {
  splits_.assign(static_cast<size_t>(vocabulary().id_max()) + 1, {-1, -1, -1});
  std::vector<int32_t> made;
  for (const Merge& merge : merges_) {
    if (merge.pair == kNoPair) continue;
    Split& split = splits_[static_cast<size_t>(merge.id)];
    if (split.left < 0) {
      made.push_back(merge.id);
      split = {left_of(merge.pair), right_of(merge.pair), merge.rank};
    } else {
      split.rank_max = kNoRank;
    }
  }
  const auto size = [&](int32_t id) { return vocabulary().token_of(id)->size(); };
  std::sort(made.begin(), made.end(), [&](int32_t a, int32_t b) { return size(a) < size(b); });
  for (const int32_t id : made) {
    Split& split = splits_[static_cast<size_t>(id)];
    for (const int32_t part : {split.left, split.right}) {
      split.rank_max = std::max(split.rank_max, splits_[static_cast<size_t>(part)].rank_max);
    }
  }
}

int64_t BpeModel::bytes() const {
  return vocabulary().bytes() + (cuts_ ? cuts_->bytes() : 0) +
         static_cast<int64_t>(merges_.capacity() * sizeof(Merge) +
                              merge_filter_.capacity() * sizeof(uint64_t) +
                              character_ids_.capacity() * sizeof(int32_t) +
                              placeholders_.capacity() / 8 + splits_.capacity() * sizeof(Split));
}

TokenModel::Cut BpeModel::next_cut(std::string_view piece, size_t from) const {
  return cuts_ ? cuts_->next_cut(piece, from) : TokenModel::next_cut(piece, from);
}

int32_t BpeModel::id_of_character(std::string_view character) const {
  const uint32_t code_point = code_point_at(character, 0);
  return code_point < kTableCharacters ? character_ids_[code_point] : vocabulary().id_of(character);
}

void BpeModel::encode_pair(int32_t left, int32_t right, std::vector<int32_t>* ids) const {
  encode(*vocabulary().token_of(left) + *vocabulary().token_of(right), ids);
}

// Goes back through the merges that make the two tokens, and asks at each pair of symbols that were
// neighbours whether the next merge within the tokens came before one of the pair.
bool BpeModel::surely_stand(int32_t left, int32_t right) const {
  if (is_placeholder(left) || is_placeholder(right)) return true;
  int32_t next_rank = kNoRank;
  while (true) {
    const Merge* merge = find_merge(left, right);
    if (merge != nullptr && merge->rank <= next_rank) return false;
    const Split& of_left = splits_[static_cast<size_t>(left)];
    const Split& of_right = splits_[static_cast<size_t>(right)];
    next_rank = std::max(of_left.rank_max, of_right.rank_max);
    if (next_rank == kNoRank) return false;
    if (of_left.rank_max == of_right.rank_max) return next_rank < 0;
    if (of_left.rank_max > of_right.rank_max) {
      left = of_left.right;
    } else {
      right = of_right.left;
    }
  }
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
    const int32_t id = id_of_character(character);
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
  struct Symbol {
    int32_t id;
    int32_t previous;
    int32_t next;
    int32_t rank;    // of the merge with the next symbol
    int32_t joined;  // id of the token that the two become
  };
  const size_t count = ids->size() - from;
  if (count > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw Error(ErrorCode::kConfig,
                fmt::format("tokenize text: {} characters in one piece: more than "
                            "2^31 (cut the text into documents)",
                            count));
  }
  std::vector<Symbol> symbols(count);
  const auto look = [&](Symbol& left) {
    const Merge* merge =
        left.next < 0 ? nullptr : find_merge(left.id, symbols[static_cast<size_t>(left.next)].id);
    left.rank = merge == nullptr ? kNoRank : merge->rank;
    left.joined = merge == nullptr ? -1 : merge->id;
  };
  for (size_t k = 0; k < count; ++k) {
    const auto at = static_cast<int32_t>(k);
    symbols[k] = {(*ids)[from + k], at - 1, k + 1 == count ? -1 : at + 1, kNoRank, -1};
  }
  // Ranks and positions; the queue's top is the least. One that a merge has changed is left in it.
  std::vector<uint64_t> candidates;
  const auto candidate_of = [](int32_t rank, int32_t position) {
    return uint64_t{static_cast<uint32_t>(rank)} << 32 | static_cast<uint32_t>(position);
  };
  for (size_t k = 0; k + 1 < count; ++k) {
    look(symbols[k]);
    if (symbols[k].rank == kNoRank) continue;
    candidates.push_back(candidate_of(symbols[k].rank, static_cast<int32_t>(k)));
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue(std::greater<>(),
                                                                             std::move(candidates));
  const auto offer = [&](int32_t position) {
    if (position < 0) return;
    Symbol& left = symbols[static_cast<size_t>(position)];
    look(left);
    if (left.rank != kNoRank) queue.push(candidate_of(left.rank, position));
  };
  while (!queue.empty()) {
    const uint64_t top = queue.top();
    queue.pop();
    const auto position = static_cast<int32_t>(top & 0xFFFFFFFFu);
    Symbol& left = symbols[static_cast<size_t>(position)];
    if (left.rank != static_cast<int32_t>(top >> 32)) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    left.id = left.joined;
    left.next = right.next;
    right.id = -1;
    right.rank = kNoRank;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = position;
    offer(left.previous);
    offer(position);
  }
  size_t out = from;
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) (*ids)[out++] = symbol.id;
  }
  ids->resize(out);
}

}  // namespace strata::text
