// SPDX-License-Identifier: Apache-2.0
#include "engine/text/word_piece.h"

#include <algorithm>

#include "engine/text/text_unicode.h"

namespace strata::text {

WordPieceModel::WordPieceModel(ModelDefinition definition)
    : TokenModel(definition),
      characters_max_(std::get<WordPieceRules>(definition.rules).characters_max),
      unknown_id_(vocabulary().unknown_id(definition.unknown_token)) {
  for (int32_t id = 0; id <= vocabulary().id_max(); ++id) {
    if (const std::string* token = vocabulary().token_of(id)) trie_.add(*token, id);
  }
  for (const char c : std::get<WordPieceRules>(definition.rules).prefix) {
    may_continue_ = may_continue_ && trie_.walk(&continuing_, c);
  }
}

void WordPieceModel::encode(std::string_view piece, std::vector<int32_t>* ids) const {
  const size_t from = ids->size();
  const auto characters =
      std::count_if(piece.begin(), piece.end(), [](char byte) { return !is_continuation(byte); });
  bool is_known = characters <= characters_max_;
  for (size_t begin = 0; is_known && begin < piece.size();) {
    uint32_t node = begin == 0 ? TokenTrie::kRoot : continuing_;
    is_known = false;
    if (begin > 0 && !may_continue_) break;
    int32_t longest = TokenTrie::kNoValue;
    size_t end = begin;
    for (size_t at = begin; at < piece.size() && trie_.walk(&node, piece[at]); ++at) {
      if (trie_.value_at(node) == TokenTrie::kNoValue) continue;
      longest = trie_.value_at(node);
      end = at + 1;
    }
    if (longest == TokenTrie::kNoValue) break;
    ids->push_back(longest);
    begin = end;
    is_known = true;
  }
  if (is_known) return;
  ids->resize(from);
  ids->push_back(unknown_id_);
}

}  // namespace strata::text
