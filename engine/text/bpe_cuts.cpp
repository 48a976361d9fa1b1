// SPDX-License-Identifier: Apache-2.0
#include "engine/text/bpe_cuts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "engine/text/text_unicode.h"

namespace strata::text {
namespace {

constexpr uint8_t kRare = 254;     // of characters that have no place
constexpr uint8_t kUnknown = 255;  // of characters that the vocabulary lacks

// The strength of a border is greater, the lower the least rank of the tokens that go over it.
constexpr uint8_t kSure = 0;      // no token goes over it
constexpr uint8_t kStrong = 254;  // cut only if the part is long
constexpr uint8_t kFirm = 255;    // never cut
constexpr size_t kLongBytes = 24;

constexpr uint64_t kFree = ~uint64_t{0};

uint64_t key_of(uint32_t left, uint32_t right) {
  return uint64_t{left} << 21 | right;
}

enum class Kind : uint8_t { kSpace, kLetter, kCapital, kDigit, kOther };

Kind kind_of(uint32_t c) {
  constexpr uint32_t kSpaceMark = 0x2581;
  if (c == kSpaceMark || is_white_space(c)) return Kind::kSpace;
  if (c >= '0' && c <= '9') return Kind::kDigit;
  if (c >= 'A' && c <= 'Z') return Kind::kCapital;
  return is_word(c) && c != '_' ? Kind::kLetter : Kind::kOther;
}

bool may_be_cut(uint32_t left, uint32_t right) {
  const Kind before = kind_of(left);
  const Kind behind = kind_of(right);
  return before != behind && !(before == Kind::kCapital && behind == Kind::kLetter);
}

uint8_t strength_of_rank(int32_t rank) {
  return static_cast<uint8_t>(253 - std::min(252, static_cast<int>(13 * std::log2(rank + 1.0))));
}

}  // namespace

BpeCuts::BpeCuts(const Vocabulary& vocabulary, std::span<const int32_t> character_ids,
                 const std::vector<MergedToken>& tokens, Rules rules)
    : vocabulary_(vocabulary), rules_(rules) {
  add_places(character_ids, tokens);
  add_neighbours(tokens);
}

// The characters that most tokens have get the first places, so that the part of the table that is
// used is small.
void BpeCuts::add_places(std::span<const int32_t> character_ids,
                         const std::vector<MergedToken>& tokens) {
  std::vector<uint32_t> counts(character_ids.size());
  for (const MergedToken& token : tokens) {
    const std::string& text = *vocabulary_.token_of(token.id);
    for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
      const uint32_t c = code_point_at(text, at);
      if (c < counts.size()) ++counts[c];
    }
  }
  places_.assign(character_ids.size(), kUnknown);
  std::vector<std::pair<uint32_t, uint32_t>> known;
  for (uint32_t c = 0; c < character_ids.size(); ++c) {
    if (character_ids[c] < 0) continue;
    places_[c] = kRare;
    known.emplace_back(counts[c], c);
  }
  const size_t count = std::min(known.size(), kPlaces);
  std::partial_sort(known.begin(), known.begin() + static_cast<std::ptrdiff_t>(count), known.end(),
                    std::greater<>());
  for (size_t k = 0; k < count; ++k) places_[known[k].second] = static_cast<uint8_t>(k);
}

void BpeCuts::add_neighbours(const std::vector<MergedToken>& tokens) {
  std::vector<uint64_t> pairs;  // key << 8 | strength; the greatest strength of a key stays
  const auto sort_pairs = [&] {
    std::sort(pairs.begin(), pairs.end(), std::greater<>());
    const auto same = [](uint64_t a, uint64_t b) { return a >> 8 == b >> 8; };
    pairs.erase(std::unique(pairs.begin(), pairs.end(), same), pairs.end());
  };
  for (const MergedToken& token : tokens) {
    const std::string& text = *vocabulary_.token_of(token.id);
    for (size_t at = 0; at < text.size();) {
      const size_t next = at + utf8_length(text[at]);
      if (next < text.size()) {
        const uint32_t left = code_point_at(text, at);
        const uint32_t right = code_point_at(text, next);
        const uint8_t strength = !rules_.has_unsure_cuts    ? kFirm
                                 : !may_be_cut(left, right) ? kStrong
                                                            : strength_of_rank(token.rank);
        pairs.push_back(key_of(left, right) << 8 | strength);
      }
      at = next;
    }
    if (pairs.size() > (size_t{1} << 20)) sort_pairs();
  }
  sort_pairs();
  table_.assign(kPlaces * kPlaces, kSure);
  neighbours_.assign(std::bit_ceil(pairs.size() * 2 + 1), kFree);
  const uint64_t mask = neighbours_.size() - 1;
  for (const uint64_t pair : pairs) {
    const uint32_t left = static_cast<uint32_t>(pair >> 29);
    const uint32_t right = static_cast<uint32_t>(pair >> 8) & 0x1FFFFF;
    if (left < places_.size() && right < places_.size()) {
      const size_t row = places_[left];
      const size_t column = places_[right];
      if (row < kPlaces && column < kPlaces) {
        table_[row * kPlaces + column] = static_cast<uint8_t>(pair);
      }
    }
    uint64_t slot = spread(pair >> 8) & mask;
    while (neighbours_[slot] != kFree) slot = (slot + 1) & mask;
    neighbours_[slot] = pair;
  }
}

int64_t BpeCuts::bytes() const {
  return static_cast<int64_t>(places_.capacity() + table_.capacity() +
                              neighbours_.capacity() * sizeof(uint64_t));
}

BpeCuts::Character BpeCuts::long_character_at(std::string_view piece, size_t at) const {
  const uint32_t code_point = code_point_at(piece, at);
  const size_t bytes = utf8_length(piece[at]);
  if (code_point < places_.size()) {
    return {code_point, places_[code_point], static_cast<uint8_t>(bytes)};
  }
  const bool is_known = vocabulary_.id_of(piece.substr(at, bytes)) >= 0;
  return {code_point, is_known ? kRare : kUnknown, static_cast<uint8_t>(bytes)};
}

uint8_t BpeCuts::strength_of_rare(const Character& left, const Character& right) const {
  if (left.place == kUnknown || right.place == kUnknown) {
    return rules_.bytes_stand_alone ? kSure : kFirm;
  }
  const uint64_t key = key_of(left.code_point, right.code_point);
  const uint64_t mask = neighbours_.size() - 1;
  uint64_t slot = spread(key) & mask;
  while (neighbours_[slot] != kFree && neighbours_[slot] >> 8 != key) slot = (slot + 1) & mask;
  return neighbours_[slot] == kFree ? kSure : static_cast<uint8_t>(neighbours_[slot]);
}

TokenModel::Cut BpeCuts::next_cut(std::string_view piece, size_t from) const {
  size_t weak = 0;         // a border that is not stronger than the one before it
  uint8_t before = kSure;  // the strength of the border before the next
  Character left = character_at(piece, from);
  for (size_t at = from + left.bytes; at < piece.size();) {
    const Character right = character_at(piece, at);
    const uint8_t strength = strength_of(left, right);
    if (strength == kSure) {
      // A few equal characters stay together, so that long runs have fewer parts.
      const bool is_run = left.code_point == right.code_point && at - from < 4 * right.bytes &&
                          piece.substr(at + right.bytes).starts_with(piece.substr(at, right.bytes));
      if (!is_run) return {at, true};
      weak = 0;
    } else {
      if (weak > 0 && before < strength) return {weak, false};
      if (at - from >= kLongBytes && strength < kFirm) return {at, false};
      weak = strength <= before && strength < kStrong ? at : 0;
    }
    before = strength;
    left = right;
    at += right.bytes;
  }
  return {piece.size(), true};
}

}  // namespace strata::text
