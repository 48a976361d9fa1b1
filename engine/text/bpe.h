// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/text/token_model.h"

namespace strata::text {

// Combines two neighbouring ids into one key.
inline uint64_t pair_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// A byte-pair model: cuts a piece of text into characters and joins neighbours until no pair has a
// rank. The pair with the lowest rank is joined first; of equal ranks, the leftmost.
//
// Guarantees: encode() takes O(n log n) for n characters. Characters that the vocabulary lacks
// become byte tokens, the unknown token, or nothing, in that order of preference. Failure: the
// constructor throws Error when the vocabulary lacks the unknown token or a token of a merge.
class BpeModel final : public TokenModel {
 public:
  explicit BpeModel(ModelDefinition definition);

  void encode(std::string_view text, std::vector<int32_t>* ids) const override;
  // Between two known characters that are not neighbours in any merged token.
  size_t first_cut(std::string_view text) const override;
  int64_t bytes() const override;

 private:
  struct Merge {
    uint64_t pair;  // left id << 32 | right id; kNoPair marks a free slot
    int32_t rank;
    int32_t id;
  };
  struct Symbol {
    int32_t id;
    int32_t previous;
    int32_t next;
  };

  void add_merges(BpeRules& rules);
  void add_neighbours();
  bool is_known(uint32_t code_point, std::string_view character) const;
  bool are_neighbours(uint64_t pair) const;
  bool may_join(std::string_view left, std::string_view right) const;
  const Merge* find_merge(int32_t left, int32_t right) const;
  void to_symbols(std::string_view text, std::vector<int32_t>* ids) const;
  void merge_short(std::vector<int32_t>* ids, size_t from) const;
  void merge_long(std::vector<int32_t>* ids, size_t from) const;

  // Constant after construction.
  std::vector<Merge> merges_;              // open addressing, a power of two
  std::vector<uint64_t> neighbours_;       // pairs of code points; open addressing, a power of two
  std::vector<uint8_t> ascii_neighbours_;  // the same as a table, for pairs below U+0080
  ByteTokens byte_tokens_;
  std::vector<int32_t> ascii_ids_;  // of one-character tokens below U+0080
  std::vector<bool> is_token_;      // by code point below U+10000: whether it is a token
  int32_t unknown_id_ = -1;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
};

}  // namespace strata::text
