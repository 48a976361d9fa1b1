// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/error.h"

namespace strata::text {

// Combines two neighbouring ids into one key.
inline uint64_t pair_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// What is special to each kind of model; the vocabulary is common to all.

// Neighbours are joined, the pair with the lowest rank first.
struct BpeRules {
  std::deque<std::pair<std::string, std::string>> merges;  // in order of rank
  std::vector<int32_t> ranks;  // of the merges, ascending, when some are equal; empty: 0, 1, 2, ...
  bool fuse_unknown = false;
  bool ignore_merges = false;
};

// The sum of the scores of the tokens is the largest that any division of the text has.
struct UnigramRules {
  std::deque<double> scores;  // by position in the vocabulary; NaN: the token is not searched
  std::optional<double> unknown_score;  // of a character; unset: 10 below the smallest score
  bool is_single_precision = false;     // scores are added as floats
};

// The longest token that the rest of a word starts with comes first.
struct WordPieceRules {
  std::string prefix = "##";  // of tokens that continue a word
  int64_t characters_max = 100;
};

// A model from a file or a trainer.
struct ModelDefinition {
  // A deque, because it grows without copies and frees its memory part by part.
  std::deque<std::pair<std::string, int32_t>> vocabulary;
  std::string unknown_token;  // may be empty
  bool byte_fallback = false;
  std::variant<BpeRules, UnigramRules, WordPieceRules> rules;
};

// The tokens of a model, by text and by id.
//
// Memory: about 150 bytes a token. Threads: any number; immutable after construction. Failure: the
// constructor, which empties `tokens`, throws Error for ids that are negative, huge or used twice.
class Vocabulary {
 public:
  explicit Vocabulary(std::deque<std::pair<std::string, int32_t>>& tokens);

  // -1 when there is no such token.
  int32_t id_of(std::string_view token) const;
  // As id_of(). Throws Error when there is no such token.
  int32_t unknown_id(const std::string& token) const;
  // Null when there is no such id.
  const std::string* token_of(int32_t id) const;
  int32_t id_max() const { return static_cast<int32_t>(tokens_.size()) - 1; }
  int64_t bytes() const;

 private:
  struct StringHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> ids_;
  std::vector<const std::string*> tokens_;  // by id; null: no token has it
};

// The ids of the tokens <0x00> to <0xFF>, which spell characters that a vocabulary lacks.
class ByteTokens {
 public:
  explicit ByteTokens(const Vocabulary& vocabulary);
  // Appends the ids of all bytes; nothing and false when one has no token.
  bool append(std::string_view bytes, std::vector<int32_t>* ids) const;
  const std::vector<int32_t>& ids() const { return ids_; }

 private:
  std::vector<int32_t> ids_;  // -1 where missing
};

// Turns a piece of text into ids.
//
// Guarantees: every piece of well-formed UTF-8 has ids, whatever the vocabulary lacks. Threads: any
// number; immutable after construction. Failure: encode() throws Error for a piece of more than
// 2^31 bytes, and where a text needs the unknown token and the file names none.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  virtual void encode(std::string_view piece, std::vector<int32_t>* ids) const = 0;

  // A place where a piece may be cut. If it is sure, the parts have the tokens of the whole. If
  // not, they have them if and only if the two tokens beside it stand: encode_pair() leaves them as
  // they are. Tokens are the encoding of their text if and only if all neighbours stand: the first
  // join over a border would also be one of the text of its two tokens (decision 0038).
  struct Cut {
    size_t offset;
    bool is_sure;
  };
  // The first cut behind `from`, which is a cut or 0; or else the end of the piece.
  virtual Cut next_cut(std::string_view piece, size_t /*from*/) const {
    return {piece.size(), true};
  }
  // Whether two neighbours in a part with a cut that is not sure are known to stand; cheaper than
  // encode_pair(), which appends the ids of the text of both.
  virtual bool surely_stand(int32_t /*left*/, int32_t /*right*/) const { return true; }
  virtual void encode_pair(int32_t left, int32_t right, std::vector<int32_t>* ids) const {
    ids->insert(ids->end(), {left, right});
  }
  virtual int64_t bytes() const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  explicit TokenModel(ModelDefinition& definition) : vocabulary_(definition.vocabulary) {}

 private:
  const Vocabulary vocabulary_;
};

std::unique_ptr<TokenModel> make_token_model(ModelDefinition definition);

// "read vocabulary: OBJECT: CAUSE"
Error bad_vocabulary(const std::string& object, const std::string& cause);

}  // namespace strata::text
