// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/text/bpe_cuts.h"
#include "engine/text/token_model.h"

namespace strata::text {

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
  Cut next_cut(std::string_view piece, size_t from) const override;
  bool surely_stand(int32_t left, int32_t right) const override;
  void encode_pair(int32_t left, int32_t right, std::vector<int32_t>* ids) const override;
  int64_t bytes() const override;

 private:
  struct Merge {
    uint64_t pair;  // left id << 32 | right id; kNoPair marks a free slot
    int32_t rank;
    int32_t id;
  };

  // The last merge that makes a token of its text.
  struct Split {
    int32_t left;
    int32_t right;
    int32_t rank_max;  // of all merges that make it; -1: a character; kNoRank: not known
  };

  void add_merges(BpeRules& rules);
  void add_characters();
  void add_splits();
  void add_cuts();
  bool is_placeholder(int32_t id) const { return placeholders_[static_cast<size_t>(id)]; }
  int32_t id_of_character(std::string_view character) const;
  // Null when the two do not merge.
  const Merge* find_merge(int32_t left, int32_t right) const;
  void to_symbols(std::string_view text, std::vector<int32_t>* ids) const;
  void merge_short(std::vector<int32_t>* ids, size_t from) const;
  void merge_long(std::vector<int32_t>* ids, size_t from) const;

  // Constant after construction.
  std::vector<Merge> merges_;  // open addressing, a power of two
  std::vector<uint64_t>
      merge_filter_;  // bits at hashes of all pairs, since most pairs have no merge
  ByteTokens byte_tokens_;
  std::vector<int32_t> character_ids_;  // by code point below U+10000; -1: no token
  std::vector<bool> placeholders_;      // by id: whether it spells characters that have no token
  std::vector<Split> splits_;           // by id; empty when pieces are not cut
  std::optional<BpeCuts> cuts_;         // unset when pieces are not cut
  int32_t unknown_id_ = -1;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
};

}  // namespace strata::text
