// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/token_model.h"
#include "engine/text/tokenizer_trie.h"

namespace strata::text {

// Takes the longest token from the start of a word, then the longest from there on that has the
// prefix of continuing tokens. A word that is too long, or has a part without a token, becomes the
// unknown token as a whole.
//
// Guarantees: encode() looks at each byte at most as often as the longest token is long. Failure:
// the constructor throws Error when the vocabulary lacks the unknown token.
class WordPieceModel final : public TokenModel {
 public:
  explicit WordPieceModel(ModelDefinition definition);

  void encode(std::string_view piece, std::vector<int32_t>* ids) const override;
  int64_t bytes() const override { return vocabulary().bytes() + trie_.bytes(); }

 private:
  // Constant after construction.
  int64_t characters_max_;
  int32_t unknown_id_;
  TokenTrie trie_;
  bool may_continue_ = true;  // whether some token has the prefix
  uint32_t continuing_ = 0;   // the node of the prefix
};

}  // namespace strata::text
