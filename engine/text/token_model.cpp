// SPDX-License-Identifier: Apache-2.0
#include "engine/text/token_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "engine/text/bpe.h"
#include "engine/text/text_unicode.h"
#include "engine/text/unigram.h"
#include "engine/text/word_piece.h"

namespace strata::text {
namespace {

constexpr int32_t kIdMax = (1 << 24) - 1;  // bounds the table of ids, whatever a hostile file says

}  // namespace

Error bad_vocabulary(const std::string& object, const std::string& cause) {
  return Error(ErrorCode::kConfig,
               fmt::format("read vocabulary: {}: {}", replace_invalid_utf8(object), cause));
}

Vocabulary::Vocabulary(std::deque<std::pair<std::string, int32_t>>& tokens) {
  int32_t top = -1;
  for (const auto& [token, id] : tokens) {
    if (id < 0 || id > kIdMax) {
      throw bad_vocabulary(fmt::format("token '{}'", token),
                           fmt::format("id {} is not within 0..{}", id, kIdMax));
    }
    top = std::max(top, id);
  }
  tokens_.assign(static_cast<size_t>(top) + 1, nullptr);
  ids_.reserve(tokens.size());
  for (; !tokens.empty(); tokens.pop_front()) {
    auto& [token, id] = tokens.front();
    const auto [entry, is_new] = ids_.emplace(std::move(token), id);
    if (!is_new || tokens_[static_cast<size_t>(id)] != nullptr) {
      throw bad_vocabulary(fmt::format("token '{}'", entry->first),
                           fmt::format("the token or its id {} occurs twice", id));
    }
    tokens_[static_cast<size_t>(id)] = &entry->first;
  }
}

int32_t Vocabulary::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

int32_t Vocabulary::unknown_id(const std::string& token) const {
  const int32_t id = id_of(token);
  if (id >= 0) return id;
  throw bad_vocabulary(fmt::format("unknown token '{}'", token), "not in the vocabulary");
}

const std::string* Vocabulary::token_of(int32_t id) const {
  return id < 0 || id > id_max() ? nullptr : tokens_[static_cast<size_t>(id)];
}

int64_t Vocabulary::bytes() const {
  constexpr int64_t kEntryBytes = 64 + 16;  // a node of ids_, and what the heap adds to it
  int64_t bytes = static_cast<int64_t>(ids_.bucket_count() * sizeof(void*));
  for (const auto& [token, id] : ids_) {
    const bool is_inside = token.capacity() < sizeof(std::string) / 2;
    bytes += kEntryBytes + (is_inside ? 0 : static_cast<int64_t>(token.capacity()) + 16);
  }
  return bytes + static_cast<int64_t>(tokens_.capacity() * sizeof(void*));
}

ByteTokens::ByteTokens(const Vocabulary& vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    ids_.push_back(vocabulary.id_of(fmt::format("<0x{:02X}>", byte)));
  }
}

bool ByteTokens::append(std::string_view bytes, std::vector<int32_t>* ids) const {
  const auto id_of = [&](char byte) { return ids_[static_cast<unsigned char>(byte)]; };
  if (!std::all_of(bytes.begin(), bytes.end(), [&](char byte) { return id_of(byte) >= 0; })) {
    return false;
  }
  for (const char byte : bytes) ids->push_back(id_of(byte));
  return true;
}

std::unique_ptr<TokenModel> make_token_model(ModelDefinition definition) {
  if (std::holds_alternative<BpeRules>(definition.rules)) {
    return std::make_unique<BpeModel>(std::move(definition));
  }
  if (std::holds_alternative<UnigramRules>(definition.rules)) {
    return std::make_unique<UnigramModel>(std::move(definition));
  }
  return std::make_unique<WordPieceModel>(std::move(definition));
}

}  // namespace strata::text
