// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "engine/base/error.h"
#include "engine/text/tokenizer_cache.h"
#include "engine/text/tokenizer_trie.h"

namespace strata::text {
namespace {

// A part of at most so many bytes between sure cuts is not cut further.
constexpr size_t kWholeBytes = 16;
// For each byte of a part between sure cuts, how much may be done at its other cuts.
constexpr size_t kSeamWork = 8;

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
    if (text.empty()) return;
    piece_ = text;
    whole_end_ = 0;
    if (text.size() <= TokenizerCache::kWordBytesMax || tokenizer_.byte_level_) {
      return part({0, text.size(), true});
    }
    if (cut(text)) drain();  // seams need the text
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
  // A part of a piece.
  struct Part {
    size_t begin = 0;
    size_t end = 0;
    bool is_sure = true;  // that the cut before it is
  };
  struct WaitingWord {
    TokenizerCache::Word word;
    Part part;
  };

  // Hands on the parts of a piece, and returns whether there was a cut that is not sure.
  bool cut(std::string_view text) {
    std::array<size_t, kWholeBytes> held;  // cuts that count if the next sure cut is far
    size_t held_count = 0;
    Part next;
    size_t sure = 0;
    bool is_all_sure = true;
    const auto part_ends = [&](size_t end, bool is_sure) {
      next.end = end;
      part(next);
      next = {end, end, is_sure};
      is_all_sure = is_all_sure && is_sure;
    };
    for (size_t at = 0; at < text.size();) {
      const TokenModel::Cut cut = tokenizer_.model_->next_cut(text, at);
      at = cut.offset;
      const bool is_far = at - sure > kWholeBytes;
      for (size_t k = 0; is_far && k < held_count; ++k) part_ends(held[k], false);
      if (is_far || cut.is_sure) held_count = 0;
      if (is_far || cut.is_sure) {
        part_ends(at, cut.is_sure);
      } else {
        held[held_count++] = at;
      }
      if (cut.is_sure) sure = at;
    }
    return !is_all_sure;
  }

  // Words wait while the processor fetches what the cache has of them.
  void part(const Part& part) {
    const std::string_view text = piece_.substr(part.begin, part.end - part.begin);
    if (text.size() > TokenizerCache::kWordBytesMax) {
      drain();
      if (!start(part)) return;
      const size_t from = ids_.size();
      encode(text);
      if (!part.is_sure) settle(from, part.end);
      return;
    }
    if (added_ - taken_ == waiting_.size()) take();
    auto& [word, part_of_word] = waiting_[added_++ % waiting_.size()];
    word.assign(text);  // in place: a copy would wait for its stores
    part_of_word = part;
    cache_.prefetch(word);
  }

  void drain() {
    while (taken_ < added_) take();
  }

  void take() {
    const auto& [word, part] = waiting_[taken_++ % waiting_.size()];
    if (!start(part)) return;
    const size_t from = ids_.size();
    if (!cache_.append(word, &ids_)) {
      encode(word.text());
      cache_.insert(word, ids_.data() + from, ids_.size() - from);
    }
    if (!part.is_sure) settle(from, part.end);
  }

  // Returns whether the ids of the part are still to be made.
  bool start(const Part& part) {
    if (part.begin < whole_end_) return false;
    if (!part.is_sure) return true;
    if (ids_.size() >= kIdsHeld) hand_out();
    sure_begin_ = part.begin;
    sure_ids_ = ids_.size();
    seam_work_ = 0;
    return true;
  }

  // Replaces tokens next to the cut before ids_[seam], and those next to a replaced one, until all
  // neighbours stand: then they are the tokens of the whole text (decision 0038).
  void settle(size_t seam, size_t text_end) {
    size_t last = seam;   // cuts behind it stand
    size_t standing = 0;  // cuts behind `at` that stand
    for (size_t at = seam; at <= last && at < ids_.size();) {
      const std::span<const int32_t> joined = joined_ids(ids_[at - 1], ids_[at]);
      if (joined.empty()) {
        at += 1 + standing;
        standing = 0;
        continue;
      }
      seam_work_ += joined.size() == 2 ? 1 : ids_.size() - at;
      if (seam_work_ > kSeamWork * (text_end - sure_begin_)) return encode_whole(text_end);
      const auto place = ids_.begin() + static_cast<std::ptrdiff_t>(at) - 1;
      const size_t common = std::min<size_t>(joined.size(), 2);
      std::copy_n(joined.begin(), common, place);
      if (joined.size() < 2) {
        ids_.erase(place + 1);
      } else {
        ids_.insert(place + 2, joined.begin() + 2, joined.end());
      }
      last = std::max(last + joined.size() - 2, at - 1 + joined.size());
      standing = joined.size() - 1;
      at -= 1;
      if (at == sure_ids_) {
        at += 1 + standing;
        standing = 0;
      }
    }
  }

  // The ids of the text of two tokens; none if they are these two.
  std::span<const int32_t> joined_ids(int32_t left, int32_t right) {
    if (tokenizer_.model_->surely_stand(left, right)) return {};
    if (cache_.find_pair(left, right, &pair_)) return {pair_.ids.data(), pair_.count};
    joined_.clear();
    tokenizer_.model_->encode_pair(left, right, &joined_);
    const auto& vocabulary = tokenizer_.model_->vocabulary();
    seam_work_ += vocabulary.token_of(left)->size() + vocabulary.token_of(right)->size();
    if (joined_.size() == 2 && joined_[0] == left && joined_[1] == right) joined_.clear();
    if (joined_.size() <= PairIds::kIds) {
      pair_.count = static_cast<uint32_t>(joined_.size());
      std::copy(joined_.begin(), joined_.end(), pair_.ids.begin());
      cache_.insert_pair(left, right, pair_);
    }
    return joined_;
  }

  // Encodes the text up to the next sure cut without others, so that its time is bounded.
  void encode_whole(size_t from) {
    whole_end_ = from;
    for (bool is_sure = false; !is_sure && whole_end_ < piece_.size();) {
      const TokenModel::Cut cut = tokenizer_.model_->next_cut(piece_, whole_end_);
      whole_end_ = cut.offset;
      is_sure = cut.is_sure;
    }
    ids_.resize(sure_ids_);
    encode(piece_.substr(sure_begin_, whole_end_ - sure_begin_));
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
  std::array<WaitingWord, 8> waiting_;
  size_t added_ = 0;
  size_t taken_ = 0;
  std::vector<int32_t> ids_;  // not handed out yet

  std::string_view piece_;  // the latest
  size_t sure_begin_ = 0;   // in the piece, the last sure cut before the parts that were taken
  size_t sure_ids_ = 0;     // the index of its ids
  size_t seam_work_ = 0;    // since that cut
  size_t whole_end_ = 0;    // parts before it have their ids already
  PairIds pair_;            // of joined_ids()
  std::vector<int32_t> joined_;
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
  token_bytes_.reserve(static_cast<size_t>(vocabulary_size_));
  for (int32_t id = 0; id < vocabulary_size_; ++id) token_bytes_.push_back(count_bytes(id));
}

Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

// Calls on_text(begin, end) and on_token(id, begin, end) from left to right.
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
    on_token(token.id, begin, end);
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
      [&](int32_t id, size_t, size_t) { encoder.token(id); });
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
        const bool is_leading = begin == 0 && !options.is_behind_token;
        const PieceContext context = {is_leading && !options.continues,
                                      is_leading ? options.continues : is_joined_at_tokens_};
        const std::string_view piece = text.substr(begin, end - begin);
        if (normalizers_.empty()) {
          encode_normalized(piece, context, encoder);
        } else {
          encode_normalized(normalize(normalizers_, piece, context.continues), context, encoder);
        }
      },
      [&](int32_t id, size_t, size_t) { encoder.token(id); });
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

void Tokenizer::split_at_tokens(std::string_view text, const UsePart& use) const {
  split_added(
      *verbatim_trie_, text,
      [&](size_t begin, size_t end) { use(text.substr(begin, end - begin), -1); },
      [&](int32_t id, size_t begin, size_t end) { use(text.substr(begin, end - begin), id); });
}

std::string Tokenizer::normalized(std::string_view text) const {
  return normalizers_.empty() ? std::string(text) : normalize(normalizers_, text, false);
}

bool Tokenizer::keeps_bytes() const {
  const auto keeps = [](const PreTokenizeStep& step) {
    const auto* split = std::get_if<SplitStep>(&step);
    return split != nullptr && split->behavior != SplitBehavior::kRemoved;
  };
  return byte_level_ && std::ranges::all_of(pre_tokenizers_, keeps);
}

uint32_t Tokenizer::count_bytes(int32_t id) const {
  constexpr std::string_view kSpace = "▁";
  if (!has(id)) return 0;
  const std::string& piece = piece_of(id);
  if (added_by_id_.contains(id)) return static_cast<uint32_t>(piece.size());
  if (piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>')) return 1;
  size_t bytes = 0;
  for (size_t at = 0; at < piece.size(); at += utf8_length(piece[at])) {
    const bool is_one = byte_level_ || piece.compare(at, kSpace.size(), kSpace) == 0;
    bytes += is_one ? 1 : utf8_length(piece[at]);
  }
  return static_cast<uint32_t>(bytes);
}

bool Tokenizer::has(int32_t id) const {
  return added_by_id_.contains(id) || model_->vocabulary().token_of(id) != nullptr;
}

bool Tokenizer::is_special(int32_t id) const {
  const auto added = added_by_id_.find(id);
  return added != added_by_id_.end() && added_[added->second].special;
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
  return model_->bytes() + std::ssize(token_bytes_) * 4 + TokenizerCache::kBytesMax;
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

}  // namespace strata::text
