// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace strata::text {

// Combines two neighbouring ids into one key.
inline uint64_t pair_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// The parts of a byte-pair model, from a file or a trainer.
struct BpeDefinition {
  // Deques, because they grow without copies and free their memory part by part.
  std::deque<std::pair<std::string, int32_t>> vocabulary;
  std::deque<std::pair<std::string, std::string>> merges;  // in order of rank
  std::string unknown_token;                               // may be empty
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
};

// A byte-pair model: cuts a piece of text into characters and joins neighbours until no pair has a
// rank. The pair with the lowest rank is joined first; of equal ranks, the leftmost.
//
// Guarantees: encode() takes O(n log n) for n characters. Characters that the vocabulary lacks
// become byte tokens, the unknown token, or nothing, in that order of preference. Threads: any
// number; immutable after construction. Failure: the constructor throws Error when the vocabulary
// lacks the unknown token or a token of a merge, and for ids that are negative, huge or used twice.
class BpeModel {
 public:
  explicit BpeModel(BpeDefinition definition);

  void encode(std::string_view text, std::vector<int32_t>* ids) const;

  // -1 when there is no such token.
  int32_t id_of(std::string_view token) const;
  // Null when there is no such id.
  const std::string* token_of(int32_t id) const;
  int32_t id_max() const { return static_cast<int32_t>(tokens_.size()) - 1; }
  size_t merge_count() const { return merge_count_; }
  int64_t bytes() const;

  // The offset of the first place where the text may be cut without changing its tokens: between
  // two known characters that are not neighbours in any merged token. The whole length when there
  // is no such place.
  size_t first_cut(std::string_view text) const;

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
  struct StringHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  void add_merges(BpeDefinition& definition);
  void add_neighbours();
  bool may_join(std::string_view left, std::string_view right) const;
  const Merge* find_merge(int32_t left, int32_t right) const;
  void to_symbols(std::string_view text, std::vector<int32_t>* ids) const;
  void merge_short(std::vector<int32_t>* ids, size_t from) const;
  void merge_long(std::vector<int32_t>* ids, size_t from) const;

  // Constant after construction.
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> ids_;
  std::vector<const std::string*> tokens_;  // by id; null: no token has it
  std::vector<Merge> merges_;               // open addressing, a power of two
  std::vector<uint64_t> neighbours_;        // sorted pairs of code points
  std::vector<uint8_t> ascii_neighbours_;   // the same as a table, for pairs below U+0080
  std::vector<int32_t> byte_ids_;           // of <0x00> to <0xFF>; -1 where missing
  std::vector<int32_t> ascii_ids_;          // of one-character tokens below U+0080
  size_t merge_count_ = 0;
  int32_t unknown_id_ = -1;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
};

}  // namespace strata::text
