// SPDX-License-Identifier: Apache-2.0
#include "engine/text/bpe_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "engine/base/error.h"
#include "engine/text/bpe.h"
#include "engine/text/pretokenizer.h"
#include "engine/text/text_unicode.h"

namespace strata::text {
namespace {

constexpr size_t kWordBytesMax = 256;  // longer runs are rulers and tables, which are ignored

struct Word {
  std::vector<int32_t> ids;
  int64_t count;
};

struct Pair {
  int64_t count = 0;
  std::vector<int32_t> words;  // words that had this pair; may be outdated or contain repeats
};

// The pair counts of all words, updated as pairs are merged. The heap holds every pair at least
// once, with a count that is not below the true one; an outdated entry is corrected when it reaches
// the top.
class PairTable {
 public:
  explicit PairTable(std::vector<Word> words) : words_(std::move(words)) {
    for (size_t k = 0; k < words_.size(); ++k) {
      add_pairs(static_cast<int32_t>(k));
    }
    push_touched();
  }

  // The most frequent pair; false when none has `count_min`.
  bool pop(int64_t count_min, int32_t* left, int32_t* right) {
    while (!heap_.empty()) {
      const Candidate top = heap_.top();
      heap_.pop();
      const auto found = pairs_.find(top.pair);
      const int64_t count = found == pairs_.end() ? 0 : found->second.count;
      if (count < count_min) continue;
      if (count != top.count) {
        heap_.push({count, top.pair});
        continue;
      }
      *left = static_cast<int32_t>(top.pair >> 32);
      *right = static_cast<int32_t>(top.pair & 0xFFFFFFFFu);
      return true;
    }
    return false;
  }

  void merge(int32_t left, int32_t right, int32_t id) {
    std::vector<int32_t> affected = std::move(pairs_[pair_of(left, right)].words);
    std::sort(affected.begin(), affected.end());
    affected.erase(std::unique(affected.begin(), affected.end()), affected.end());
    for (const int32_t index : affected) {
      remove_pairs(index);
      std::vector<int32_t>& ids = words_[static_cast<size_t>(index)].ids;
      size_t out = 0;
      for (size_t k = 0; k < ids.size(); ++k, ++out) {
        const bool is_pair = k + 1 < ids.size() && ids[k] == left && ids[k + 1] == right;
        ids[out] = is_pair ? id : ids[k];
        if (is_pair) ++k;
      }
      ids.resize(out);
      add_pairs(index);
    }
    pairs_.erase(pair_of(left, right));
    push_touched();
  }

 private:
  struct Candidate {
    int64_t count;
    uint64_t pair;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  void add_pairs(int32_t index) {
    const Word& word = words_[static_cast<size_t>(index)];
    for (size_t k = 0; k + 1 < word.ids.size(); ++k) {
      const uint64_t key = pair_of(word.ids[k], word.ids[k + 1]);
      Pair& pair = pairs_[key];
      pair.count += word.count;
      if (pair.words.empty() || pair.words.back() != index) pair.words.push_back(index);
      touched_.push_back(key);
    }
  }

  void remove_pairs(int32_t index) {
    const Word& word = words_[static_cast<size_t>(index)];
    for (size_t k = 0; k + 1 < word.ids.size(); ++k) {
      pairs_[pair_of(word.ids[k], word.ids[k + 1])].count -= word.count;
    }
  }

  void push_touched() {
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (const uint64_t key : touched_) {
      const auto found = pairs_.find(key);
      if (found != pairs_.end() && found->second.count > 0) {
        heap_.push({found->second.count, key});
      }
    }
    touched_.clear();
  }

  std::vector<Word> words_;
  std::unordered_map<uint64_t, Pair> pairs_;
  std::priority_queue<Candidate> heap_;
  std::vector<uint64_t> touched_;  // pairs whose counts grew since they were last pushed
};

}  // namespace

const char* const BpeTrainer::kSplitPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

class BpeTrainer::WordCounter final : public PieceSink {
 public:
  WordCounter() {
    steps_.emplace_back(
        SplitStep{TextPattern::regex(kSplitPattern), SplitBehavior::kIsolated, false});
  }

  void add(std::string_view text) { pre_tokenize(steps_, text, {true, false}, *this); }

  void piece(std::string_view text) override {
    if (text.size() < 2 || text.size() > kWordBytesMax) return;
    auto found = counts_.find(text);
    if (found == counts_.end()) found = counts_.emplace(std::string(text), 0).first;
    ++found->second;
  }

  std::vector<Word> words() const {
    std::vector<Word> result;
    result.reserve(counts_.size());
    for (const auto& [text, count] : counts_) {
      Word word{{}, count};
      for (const char byte : text) word.ids.push_back(static_cast<unsigned char>(byte));
      result.push_back(std::move(word));
    }
    return result;
  }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::vector<PreTokenizeStep> steps_;
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> counts_;
};

BpeTrainer::BpeTrainer(BpeTrainOptions options) : options_(std::move(options)) {
  const int64_t size_min = 256 + static_cast<int64_t>(options_.special_tokens.size());
  constexpr int64_t kSizeMax = 1 << 20;
  if (options_.vocabulary_size < size_min || options_.vocabulary_size > kSizeMax) {
    throw Error(
        ErrorCode::kConfig,
        fmt::format("train tokenizer: vocabulary of {}: out of range (give {}, for 256 bytes and "
                    "{} special tokens, to {})",
                    options_.vocabulary_size, size_min, size_min - 256, kSizeMax));
  }
  counter_ = std::make_unique<WordCounter>();
}

BpeTrainer::~BpeTrainer() = default;

void BpeTrainer::add_text(std::string_view text) {
  const size_t invalid = find_invalid_utf8(text);
  if (invalid != std::string_view::npos) {
    throw Error(
        ErrorCode::kConfig,
        fmt::format("train tokenizer: byte {} of the text: not UTF-8 (convert the text to UTF-8)",
                    invalid));
  }
  counter_->add(text);
}

BpeVocabulary BpeTrainer::train() const {
  BpeVocabulary vocabulary;
  vocabulary.special_tokens = options_.special_tokens;
  std::unordered_map<std::string, int32_t> ids;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
    ids.emplace(vocabulary.tokens.back(), byte);
  }
  PairTable pairs(counter_->words());
  int32_t left = 0;
  int32_t right = 0;
  while (vocabulary.size() < options_.vocabulary_size &&
         pairs.pop(options_.pair_count_min, &left, &right)) {
    const std::string joined = vocabulary.tokens[static_cast<size_t>(left)] +
                               vocabulary.tokens[static_cast<size_t>(right)];
    // Two merges may give one token: "ab" + "c" and "a" + "bc".
    const auto [token, is_new] =
        ids.emplace(joined, static_cast<int32_t>(vocabulary.tokens.size()));
    if (is_new) vocabulary.tokens.push_back(joined);
    vocabulary.merges.emplace_back(left, right);
    pairs.merge(left, right, token->second);
  }
  return vocabulary;
}

int64_t train_tokenizer(const std::string& name, const GiveTexts& give,
                        const BpeTrainOptions& options, const std::string& directory) {
  BpeTrainer trainer(options);
  bool is_empty = true;
  give([&](std::string_view text) {
    trainer.add_text(text);
    is_empty = is_empty && text.empty();
  });
  const BpeVocabulary vocabulary = trainer.train();
  if (is_empty) {
    throw Error(ErrorCode::kConfig,
                fmt::format("train tokenizer: {}: it is empty (give data with text)", name));
  }
  if (vocabulary.merges.empty()) {
    throw Error(ErrorCode::kConfig,
                fmt::format("train tokenizer: {}: no pair of characters occurs {} "
                            "times (give more text)",
                            name, options.pair_count_min));
  }
  write_tokenizer(vocabulary, directory);
  return vocabulary.size();
}

}  // namespace strata::text
