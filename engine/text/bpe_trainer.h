// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::text {

struct BpeTrainOptions {
  int64_t vocabulary_size = 4096;  // bytes, merges and special tokens together
  std::vector<std::string> special_tokens = {"<|endoftext|>"};  // the first one ends a document
  int64_t pair_count_min = 2;                                   // rarer pairs are not merged
};

// A byte-level vocabulary. Ids 0 to 255 are the bytes, followed by the merged tokens in order of
// rank and the special tokens. It is smaller than requested when the text has too few pairs.
struct BpeVocabulary {
  std::vector<std::string> tokens;  // by id, as raw bytes; without the special tokens
  std::vector<std::pair<int32_t, int32_t>> merges;
  std::vector<std::string> special_tokens;
  int64_t size() const { return static_cast<int64_t>(tokens.size() + special_tokens.size()); }
};

// Learns a byte-level BPE vocabulary: cuts texts into words with kSplitPattern, counts them, and
// repeatedly joins the most frequent pair of neighbours.
//
// Guarantees: the result depends only on how often each word occurs. Of pairs with equal counts,
// the one with the smaller left id is merged first, then the one with the smaller right id. Memory:
// about
// 100 bytes a distinct word; texts are not kept. Threads: one. Failure: Error for a size that does
// not hold the bytes and special tokens, and for text that is not UTF-8.
class BpeTrainer {
 public:
  // Letters with one character before them, up to three digits, other characters, line ends, white
  // space.
  static const char* const kSplitPattern;

  explicit BpeTrainer(BpeTrainOptions options);
  ~BpeTrainer();

  // A text that is split between two calls must be cut before a line that does not start with white
  // space, because otherwise a word may be cut in two.
  void add_text(std::string_view text);
  BpeVocabulary train() const;

 private:
  class WordCounter;
  BpeTrainOptions options_;
  std::unique_ptr<WordCounter> counter_;
};

// Writes tokenizer.json and tokenizer_config.json, which Strata and Transformers load.
void write_tokenizer(const BpeVocabulary& vocabulary, const std::string& directory);

// Trains on the texts that `give` hands to what it is called with, each as add_text() wants it, and
// writes the result. `name` is for messages. Returns the vocabulary's size.
using GiveTexts = std::function<void(const std::function<void(std::string_view)>& take)>;
int64_t train_tokenizer(const std::string& name, const GiveTexts& give,
                        const BpeTrainOptions& options, const std::string& directory);

}  // namespace strata::text
