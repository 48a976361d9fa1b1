// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/text/token_model.h"

namespace strata::text {

// Spreads a key over all bits, of which the lower ones are the place in a table.
inline uint64_t spread(uint64_t key) {
  key *= 0x9E3779B97F4A7C15u;
  return key ^ (key >> 29);
}

// Where a piece may be cut for a byte-pair model.
//
// A cut is sure between two characters that are not neighbours in any merged token, and next to
// characters that byte tokens spell. It is not sure where the kind of the characters changes, as
// at the border of a word, and both neighbouring borders are in tokens of lower rank. Memory: about
// 130 KiB, and 16 bytes for each pair of neighbours. Threads: any number; immutable after
// construction.
class BpeCuts {
 public:
  struct Rules {
    bool bytes_stand_alone = false;  // unknown characters become byte tokens, which never join
    bool has_unsure_cuts = false;
  };
  struct MergedToken {
    int32_t id;
    int32_t rank;
  };

  // `character_ids` has the id of each character's token, by code point, and -1 for those without
  // one; the vocabulary, which has the others, must outlive the object.
  BpeCuts(const Vocabulary& vocabulary, std::span<const int32_t> character_ids,
          const std::vector<MergedToken>& tokens, Rules rules);

  TokenModel::Cut next_cut(std::string_view piece, size_t from) const;
  int64_t bytes() const;

 private:
  struct Character {
    uint32_t code_point;
    uint8_t place;  // in the table; or kPlaces or more
    uint8_t bytes;
  };
  static constexpr size_t kPlaces = 254;

  void add_places(std::span<const int32_t> character_ids, const std::vector<MergedToken>& tokens);
  void add_neighbours(const std::vector<MergedToken>& tokens);
  Character character_at(std::string_view piece, size_t at) const {
    const auto lead = static_cast<uint8_t>(piece[at]);
    return lead < 0x80 ? Character{lead, places_[lead], 1} : long_character_at(piece, at);
  }
  Character long_character_at(std::string_view piece, size_t at) const;
  uint8_t strength_of(const Character& left, const Character& right) const {
    const bool is_in_table = left.place < kPlaces && right.place < kPlaces;
    return is_in_table ? table_[left.place * kPlaces + right.place] : strength_of_rare(left, right);
  }
  uint8_t strength_of_rare(const Character& left, const Character& right) const;

  // Constant after construction.
  const Vocabulary& vocabulary_;
  Rules rules_;
  std::vector<uint8_t> places_;       // by code point, as far as character_ids goes
  std::vector<uint8_t> table_;        // strengths of pairs of characters that have places
  std::vector<uint64_t> neighbours_;  // all pairs and strengths; open addressing, a power of two
};

}  // namespace strata::text
