// SPDX-License-Identifier: Apache-2.0
#include "engine/text/unigram.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/base/check.h"
#include "engine/text/text_unicode.h"

namespace strata::text {
namespace {

constexpr double kUnknownPenalty = 10;
constexpr size_t kNowhere = std::string_view::npos;

}  // namespace

UnigramModel::UnigramModel(ModelDefinition definition)
    : TokenModel(definition), byte_tokens_(vocabulary()), byte_fallback_(definition.byte_fallback) {
  auto& rules = std::get<UnigramRules>(definition.rules);
  STRATA_CHECK(static_cast<int64_t>(rules.scores.size()) == int64_t{vocabulary().id_max()} + 1);
  is_single_precision_ = rules.is_single_precision;
  if (!definition.unknown_token.empty()) {
    unknown_id_ = vocabulary().unknown_id(definition.unknown_token);
  }
  double smallest = std::numeric_limits<double>::infinity();
  scores_.reserve(rules.scores.size());
  for (; !rules.scores.empty(); rules.scores.pop_front()) {
    const auto id = static_cast<int32_t>(scores_.size());
    const double score = rules.scores.front();
    scores_.push_back(score);
    if (std::isnan(score)) continue;
    const std::string& token = *vocabulary().token_of(id);
    if (std::isinf(score)) {
      throw bad_vocabulary(fmt::format("token '{}'", token), "its score is infinite");
    }
    smallest = std::min(smallest, score);
    trie_.add(token, id);
  }
  unknown_score_ = rules.unknown_score.value_or(smallest - kUnknownPenalty);
}

int64_t UnigramModel::bytes() const {
  return vocabulary().bytes() + trie_.bytes() +
         static_cast<int64_t>(scores_.capacity() * sizeof(scores_[0]));
}

// The search through one piece. Where no token reaches beyond a place, the best division up to
// there is final, so its tokens are handed out and only its sum is kept.
class UnigramModel::Search {
 public:
  Search(const UnigramModel& model, std::string_view piece, std::vector<int32_t>* ids)
      : model_(model), piece_(piece), ids_(ids) {
    arrivals_.reserve(std::min<size_t>(piece.size() + 1, 256));
    arrivals_.push_back({0, 0, 0});
  }

  void run() {
    for (size_t at = 0; at < piece_.size();) {
      const size_t length = utf8_length(piece_[at]);
      const double sum = arrivals_[at - begin_].sum;
      if (!take_tokens(at, length, sum)) {
        offer(at, length, model_.unknown_score_ + sum, model_.unknown_id_);
      }
      at += length;
      if (arrivals_.size() == at - begin_ + 1) finish_at(at);
    }
    end_unknown(piece_.size());
  }

 private:
  // The best division that ends at a place: its sum and its last token.
  struct Arrival {
    double sum;
    int32_t id;
    uint32_t length;  // 0: no division ends here
  };

  // Offers all tokens that start at a place. Returns whether one is the character there.
  bool take_tokens(size_t begin, size_t character_length, double sum) {
    bool has_character = false;
    uint32_t node = TokenTrie::kRoot;
    for (size_t at = begin; at < piece_.size() && model_.trie_.walk(&node, piece_[at]); ++at) {
      const int32_t id = model_.trie_.value_at(node);
      if (id == TokenTrie::kNoValue) continue;
      const size_t length = at + 1 - begin;
      offer(begin, length, model_.scores_[static_cast<size_t>(id)] + sum, id);
      has_character = has_character || length == character_length;
    }
    return has_character;
  }

  void offer(size_t begin, size_t length, double sum, int32_t id) {
    const size_t end = begin + length - begin_;
    if (end >= arrivals_.size()) arrivals_.resize(end + 1, Arrival{0, 0, 0});
    if (model_.is_single_precision_) sum = static_cast<float>(sum);
    Arrival& arrival = arrivals_[end];
    if (arrival.length != 0 && !(sum > arrival.sum)) return;
    arrival = {sum, id, static_cast<uint32_t>(length)};
  }

  // Hands out the tokens from begin_ to `end`.
  void finish_at(size_t end) {
    path_.clear();
    for (size_t at = end - begin_; at > 0; at -= arrivals_[at].length) {
      path_.push_back(arrivals_[at]);
    }
    size_t at = begin_;
    for (; !path_.empty(); path_.pop_back()) {
      const Arrival& token = path_.back();
      if (token.id == model_.unknown_id_) {
        if (unknown_begin_ == kNowhere) unknown_begin_ = at;
      } else {
        end_unknown(at);
        ids_->push_back(token.id);
      }
      at += token.length;
    }
    arrivals_.front().sum = arrivals_.back().sum;
    arrivals_.resize(1);
    begin_ = end;
  }

  // Ends a run of unknown characters, which together may be a token.
  void end_unknown(size_t end) {
    if (unknown_begin_ == kNowhere) return;
    const std::string_view run = piece_.substr(unknown_begin_, end - unknown_begin_);
    unknown_begin_ = kNowhere;
    const TokenTrie::Match whole = model_.trie_.longest_prefix(run);
    if (whole.end == run.size()) {
      ids_->push_back(static_cast<int32_t>(whole.value));
    } else if (!model_.byte_fallback_ || !model_.byte_tokens_.append(run, ids_)) {
      if (model_.unknown_id_ < 0) {
        throw Error(ErrorCode::kConfig,
                    fmt::format("tokenize text: '{}': not in the vocabulary, which has no token "
                                "for unknown characters (remove it from the text)",
                                run.substr(0, utf8_length(run[0]))));
      }
      ids_->push_back(model_.unknown_id_);
    }
  }

  const UnigramModel& model_;
  const std::string_view piece_;
  std::vector<int32_t>* ids_;
  std::vector<Arrival> arrivals_;  // by place, from begin_ on
  std::vector<Arrival> path_;
  size_t begin_ = 0;
  size_t unknown_begin_ = kNowhere;
};

void UnigramModel::encode(std::string_view piece, std::vector<int32_t>* ids) const {
  if (piece.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw Error(ErrorCode::kConfig,
                fmt::format("tokenize text: {} bytes in one piece: more than 2^31 (cut the text "
                            "into documents)",
                            piece.size()));
  }
  Search(*this, piece, ids).run();
}

}  // namespace strata::text
