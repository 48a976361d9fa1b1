// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "engine/text/token_model.h"
#include "engine/text/tokenizer_trie.h"

namespace strata::text {

// Divides a piece into the tokens whose scores have the largest sum (Viterbi). A character without
// a token of its own has a low score; neighbouring ones become byte tokens, or together the unknown
// token.
//
// Guarantees: encode() takes time in proportion to the piece times the longest token; of equal
// sums, the division found first from left to right counts, with sums in the order and precision of
// the program that the file is for. Memory: 16 bytes a byte of the longest stretch that overlapping
// tokens cover. Failure: the constructor throws Error for scores that are infinite, and when the
// vocabulary lacks the unknown token.
class UnigramModel final : public TokenModel {
 public:
  explicit UnigramModel(ModelDefinition definition);

  void encode(std::string_view piece, std::vector<int32_t>* ids) const override;
  int64_t bytes() const override;

 private:
  class Search;

  // Constant after construction.
  TokenTrie trie_;
  std::vector<double> scores_;  // by id
  ByteTokens byte_tokens_;
  double unknown_score_ = 0;
  int32_t unknown_id_ = -1;
  bool byte_fallback_;
  bool is_single_precision_;
};

}  // namespace strata::text
