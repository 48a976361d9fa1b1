// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/base/units.h"
#include "engine/data/data_tokens.h"

namespace strata::text {
class Tokenizer;
}

namespace strata::data {

// Samples of T input tokens each, cut from a token sequence. Sample k has the inputs tokens[k*T ..
// k*T+T); its targets are the tokens one position later, or -1 where the loss ignores them.
//
// The last sample of a sequence may be shorter and is padded with id 0 and target -1.
//
// A view: the sequence must outlive it. Threads: any number.
class TokenSource {
 public:
  TokenSource() = default;
  TokenSource(const TokenSequence& tokens, int64_t length, int64_t first, int64_t count)
      : tokens_(&tokens), length_(length), first_(first), count_(count) {}

  int64_t sample_count() const { return count_; }
  int64_t length() const { return length_; }
  void sample(int64_t index, int32_t* inputs, int32_t* targets) const;
  // The number of targets in the sample that are not -1.
  int64_t target_count(int64_t index) const;
  bool has_masks() const { return tokens_->has_masks(); }

 private:
  // Tokens of a sample that have a next one.
  int64_t length_of(int64_t index) const {
    return std::min(length_, tokens_->count() - 1 - (first_ + index) * length_);
  }

  const TokenSequence* tokens_ = nullptr;
  int64_t length_ = 0;
  int64_t first_ = 0;
  int64_t count_ = 0;
};

struct DataOptions {
  int64_t length = 0;              // T
  int64_t vocabulary = 0;          // of the model: ids must be below it
  int64_t held_out_samples = 0;    // cut from the end for evaluation
  double held_out_fraction = 0.0;  // instead: a part of all samples, at least one
  // The tokens behind the last whole sample become a padded sample, for evaluation.
  bool keeps_tail = false;
  // Limit of memory for the tokens and for reading them; 0: no limit.
  int64_t room_bytes = 0;
  // The name of a chat template of the model, "chatml", or a .jinja file; empty: the model's own.
  std::string chat_template = {};
};

// All data of a run.
//
// Detects the format: a token file (.bin, or an llm.c header); JSON lines (.jsonl, .json, or a
// first character '{'); a text file or a directory of .txt and .md files; or a directory with
// train.jsonl, whose valid.jsonl is then all of the held-out data, whatever the options say.
// Documents form one sequence, each with the tokenizer's prefix and suffix, followed by the EOS
// token; of a chat, only what the chat template writes. The targets of training and held-out data
// are disjoint. Memory: bytes(); token files are read when needed. Failure: Error that names file
// and line, byte or token; it is an error to have no data, no target, or fewer tokens to train on
// than one sample.
class Dataset {
 public:
  // `tokenizer` may be null for token files. It is used only here.
  static Dataset open(const std::string& path, const text::Tokenizer* tokenizer,
                      const DataOptions& options);

  // Throws what open() would throw when there is no data at `path`.
  static void check(const std::string& path);

  // The memory of the tokens of the shortest text.
  static int64_t least_bytes(int64_t vocabulary) { return TokenSequence::block_bytes(vocabulary); }
  // The most memory that the tokens of `text_bytes` of text can take; a token has at least one byte
  // of text.
  static int64_t most_bytes(int64_t vocabulary, int64_t text_bytes) {
    const int64_t block = TokenSequence::block_bytes(vocabulary);
    return 2 * block + ceil_div(text_bytes * TokenSequence::width_of(vocabulary), block) * block;
  }

  const TokenSource& train() const { return train_; }
  const TokenSource& held_out() const { return held_out_; }
  int64_t token_count() const { return tokens_->count(); }
  // Fingerprint of training and held-out data (see TokenSequence::fingerprint).
  uint64_t fingerprint() const {
    const uint64_t train = tokens_->fingerprint();
    return held_out_tokens_ ? train * 31 + held_out_tokens_->fingerprint() : train;
  }
  int64_t bytes() const {
    return tokens_->bytes() + (held_out_tokens_ ? held_out_tokens_->bytes() : 0);
  }
  // One line that says which format was detected, and how much data.
  const std::string& description() const { return description_; }

 private:
  Dataset() = default;
  void split(const std::string& path, const DataOptions& options);

  std::unique_ptr<TokenSequence> tokens_;
  std::unique_ptr<TokenSequence> held_out_tokens_;  // null: held-out data is a part of `tokens_`
  TokenSource train_;
  TokenSource held_out_;
  std::string description_;
};

}  // namespace strata::data
