// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/error.h"
#include "engine/text/tokenizer_cache.h"
#include "engine/text/tokenizer_trie.h"

namespace strata::text {
namespace {

constexpr size_t kCutBytes = 48;  // longer pieces are cut where no merge can join

uint32_t last_code_point(std::string_view text) {
  return code_point_at(text, utf8_start(text, text.size() - 1));
}

// Bytes of white space at the end and at the start of a text.
size_t trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const std::string_view head = text.substr(0, end);
    const uint32_t last = last_code_point(head);
    if (!is_white_space(last)) break;
    end = utf8_start(text, end - 1);
  }
  return text.size() - end;
}

size_t leading_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && is_white_space(code_point_at(text, at))) at += utf8_length(text[at]);
  return at;
}

}  // namespace

// Turns pieces into ids, from the cache or by the model.
class Tokenizer::Encoder final : public PieceSink {
 public:
  Encoder(const Tokenizer& tokenizer, TokenizerCache& cache, size_t text_bytes, const TakeIds& take)
      : tokenizer_(tokenizer), cache_(cache), take_(take) {
    constexpr size_t kTokenBytes = 3;  // of most texts, or more
    ids_.reserve(std::min(text_bytes / kTokenBytes + 8, kIdsHeld));
  }

  void piece(std::string_view text) override {
    while (text.size() > kCutBytes) {
      const size_t cut = tokenizer_.byte_level_ ? text.size() : tokenizer_.model_->first_cut(text);
      word(text.substr(0, cut));
      text.remove_prefix(cut);
    }
    if (!text.empty()) word(text);
  }

  void token(int32_t id) {
    drain();
    ids_.push_back(id);
  }
  void tokens(const std::vector<int32_t>& ids) {
    drain();
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }

  void finish() {
    drain();
    hand_out();
  }

 private:
  // Words wait while the processor fetches what the cache has of them.
  void word(std::string_view text) {
    if (ids_.size() >= kIdsHeld) hand_out();
    if (text.size() > TokenizerCache::kWordBytesMax) {
      drain();
      return encode(text);
    }
    if (added_ - taken_ == waiting_.size()) take();
    TokenizerCache::Word& word = waiting_[added_++ % waiting_.size()];
    word = TokenizerCache::Word(text);
    cache_.prefetch(word);
  }

  void drain() {
    while (taken_ < added_) take();
  }

  void take() {
    const TokenizerCache::Word& word = waiting_[taken_++ % waiting_.size()];
    if (cache_.append(word, &ids_)) return;
    const size_t from = ids_.size();
    encode(word.text());
    cache_.insert(word, ids_.data() + from, ids_.size() - from);
  }

  void encode(std::string_view text) {
    if (tokenizer_.byte_level_) {
      tokenizer_.model_->encode(tokenizer_.alphabet_.spell(text), &ids_);
    } else {
      tokenizer_.model_->encode(text, &ids_);
    }
  }

  void hand_out() {
    if (!ids_.empty()) take_(ids_);
    ids_.clear();
  }

  static constexpr size_t kIdsHeld = 1 << 16;

  const Tokenizer& tokenizer_;
  TokenizerCache& cache_;
  const TakeIds& take_;
  std::array<TokenizerCache::Word, 8> waiting_;
  size_t added_ = 0;
  size_t taken_ = 0;
  std::vector<int32_t> ids_;  // not handed out yet
};

Tokenizer::Tokenizer(TokenizerDefinition definition, TokenizerConfig config)
    : model_(make_token_model(std::move(definition.model))),
      added_(std::move(definition.added_tokens)),
      normalizers_(std::move(definition.normalizers)),
      pre_tokenizers_(std::move(definition.pre_tokenizers)),
      byte_level_(definition.byte_level),
      prefix_ids_(std::move(definition.prefix_ids)),
      suffix_ids_(std::move(definition.suffix_ids)),
      decoders_(std::move(definition.decoders)),
      is_joined_at_tokens_(definition.is_joined_at_tokens),
      config_(std::move(config)),
      verbatim_trie_(std::make_unique<TokenTrie>()),
      normalized_trie_(std::make_unique<TokenTrie>()),
      cache_(std::make_unique<TokenizerCache>()) {
  vocabulary_size_ = int64_t{model_->vocabulary().id_max()} + 1;
  for (size_t k = 0; k < added_.size(); ++k) {
    const AddedToken& token = added_[k];
    added_by_id_.emplace(token.id, k);
    vocabulary_size_ = std::max(vocabulary_size_, int64_t{token.id} + 1);
    const bool is_normalized = token.normalized && !token.as_spelt;
    added_spelling_.push_back(is_normalized ? normalize(normalizers_, token.content, false)
                                            : token.content);
    TokenTrie& trie = token.normalized ? *normalized_trie_ : *verbatim_trie_;
    trie.add(added_spelling_.back(), static_cast<int32_t>(k));
  }
}

Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

// Calls on_text(begin, end) and on_token(id) from left to right.
template <class OnText, class OnToken>
void Tokenizer::split_added(const TokenTrie& trie, std::string_view text, OnText on_text,
                            OnToken on_token) const {
  size_t done = 0;
  size_t from = 0;
  TokenTrie::Match match;
  while (trie.find(text, from, &match)) {
    from = match.end;
    const AddedToken& token = added_[match.value];
    if (token.single_word) {
      const bool opens = match.begin == 0 || !is_word(last_code_point(text.substr(0, match.begin)));
      const bool closes = match.end == text.size() || !is_word(code_point_at(text, match.end));
      if (!opens || !closes) continue;
    }
    size_t begin = match.begin;
    size_t end = match.end;
    if (token.lstrip) begin = std::max(begin - trailing_space(text.substr(0, begin)), done);
    if (token.rstrip) end += leading_space(text.substr(end));
    if (done < begin) on_text(done, begin);
    on_token(token.id);
    done = end;
  }
  if (done < text.size()) on_text(done, text.size());
}

void Tokenizer::encode_normalized(std::string_view text, PieceContext context,
                                  Encoder& encoder) const {
  split_added(
      *normalized_trie_, text,
      [&](size_t begin, size_t end) {
        const bool is_leading = begin == 0;
        pre_tokenize(pre_tokenizers_, text.substr(begin, end - begin),
                     {context.is_first && is_leading, context.continues && is_leading}, encoder);
      },
      [&](int32_t id) { encoder.token(id); });
}

void Tokenizer::encode(std::string_view text, const EncodeOptions& options,
                       const TakeIds& take) const {
  const size_t invalid = find_invalid_utf8(text);
  if (invalid != std::string_view::npos) {
    throw Error(ErrorCode::kConfig,
                fmt::format("tokenize text: byte {} (0x{:02x}): not UTF-8 (convert "
                            "the text to UTF-8)",
                            invalid, static_cast<unsigned char>(text[invalid])));
  }
  Encoder encoder(*this, options.cache != nullptr ? *options.cache : *cache_, text.size(), take);
  if (options.add_special) encoder.tokens(prefix_ids_);
  split_added(
      *verbatim_trie_, text,
      [&](size_t begin, size_t end) {
        const bool is_leading = begin == 0;
        const PieceContext context = {is_leading && !options.continues,
                                      is_leading ? options.continues : is_joined_at_tokens_};
        const std::string_view piece = text.substr(begin, end - begin);
        if (normalizers_.empty()) {
          encode_normalized(piece, context, encoder);
        } else {
          encode_normalized(normalize(normalizers_, piece, context.continues), context, encoder);
        }
      },
      [&](int32_t id) { encoder.token(id); });
  if (options.add_special) encoder.tokens(suffix_ids_);
  encoder.finish();
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<int32_t> ids;
  encode(text, options, [&](const std::vector<int32_t>& part) {
    ids.insert(ids.end(), part.begin(), part.end());
  });
  return ids;
}

const std::string& Tokenizer::piece_of(int32_t id) const {
  const auto added = added_by_id_.find(id);
  if (added != added_by_id_.end()) return added_spelling_[added->second];
  const std::string* token = model_->vocabulary().token_of(id);
  if (token != nullptr) return *token;
  throw Error(ErrorCode::kConfig,
              fmt::format("decode tokens: id {}: not in the vocabulary of {} (use the tokenizer "
                          "that the ids were made with)",
                          id, vocabulary_size_));
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    const auto added = added_by_id_.find(id);
    const bool is_special = added != added_by_id_.end() && added_[added->second].special;
    if (!skip_special || !is_special) tokens.push_back(piece_of(id));
  }
  if (decoders_) return decode_tokens(*decoders_, std::move(tokens));
  std::string text;
  for (const std::string& token : tokens) {
    if (&token != &tokens.front()) text += ' ';
    text += token;
  }
  return text;
}

int64_t Tokenizer::bytes() const {
  return model_->bytes() + TokenizerCache::kBytesMax;
}

int32_t Tokenizer::id_of(std::string_view token) const {
  for (const AddedToken& added : added_) {
    if (added.content == token) return added.id;
  }
  return model_->vocabulary().id_of(token);
}

bool Tokenizer::appends(int32_t id) const {
  return !suffix_ids_.empty() && suffix_ids_.back() == id;
}

std::string StreamDecoder::push(int32_t id) {
  if (id >= tokenizer_.vocabulary_size()) return "";
  ids_.push_back(id);
  return advance(false);
}

std::string StreamDecoder::finish() {
  return advance(true);
}

// Decodes all kept ids and the ids already shown, and returns the difference. A decoder that treats
// the first token specially then treats the same token so both times.
std::string StreamDecoder::advance(bool is_last) {
  const std::vector<int32_t> shown(ids_.begin(),
                                   ids_.begin() + static_cast<std::ptrdiff_t>(shown_));
  const std::string before = tokenizer_.decode(shown, skip_special_);
  const std::string after = tokenizer_.decode(ids_, skip_special_);
  const bool is_incomplete = after.ends_with("\xEF\xBF\xBD") && !is_last;
  if (is_incomplete || after.size() <= before.size()) return "";
  const std::vector<int32_t> added(ids_.begin() + static_cast<std::ptrdiff_t>(shown_), ids_.end());
  // Tokens without a text of their own do not show where the text starts.
  if (!tokenizer_.decode(added, skip_special_).empty()) {
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(shown_));
  }
  shown_ = ids_.size();
  return after.substr(before.size());
}

}  // namespace strata::text
