// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/units.h"
#include "engine/config/options.h"
#include "engine/data/data_read.h"
#include "engine/data/token_source.h"

namespace strata::text {
class Tokenizer;
}

namespace strata::data {

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
  std::string chat_date = {};  // that templates see: "2024-07-26"; empty: this one
  // All of the held-out data, instead of a part of the data; as the items of --data.
  std::vector<std::string> held_out_data = {};
  std::vector<std::string> columns = {};  // RecordColumns
  config::SampleLayout samples = config::SampleLayout::kStream;
  config::TrainOn train_on = config::TrainOn::kAnswers;
  bool train_on_end = true;
  bool as_chats = false;           // see RecordRules
  bool skips_bad_records = false;  // see RecordRules
  ReadThreads threads = {};
  CacheOptions cache = {};
};

// All data of a run.
//
// Detects the format of each file: a token file (.bin, or an llm.c header); JSON lines or a JSON
// array (.jsonl, .json, or a first character '{'); or text. Directories are read as DataItem says;
// their files for validation are then all of the held-out data, whatever the options say, except
// for `held_out_data`. Documents form one sequence, each with the tokenizer's prefix and suffix,
// followed by the EOS token; of a chat, only what the chat template writes. Token files, and the
// parts of a mixture, are sequences of their own. The targets of training and held-out data are
// disjoint. Memory: bytes(); token files, and the tokens of large texts, which are kept in files
// (CacheOptions), are read when needed. Failure: Error that names file and
// line, byte or token; it is an error to have no data, no target, or fewer tokens to train on than
// one sample.
class Dataset {
 public:
  // `paths` are the items of --data. `tokenizer` may be null for token files. It is used only here.
  static Dataset open(const std::vector<std::string>& paths, const text::Tokenizer* tokenizer,
                      const DataOptions& options);

  // The most that the tokens of these data, and of the held-out data of the options, take in memory
  // while they are read and afterwards.
  static int64_t most_bytes(const std::vector<std::string>& paths, const DataOptions& options);

  // Throws what open() would throw when there is no data at the paths.
  static void check(const std::vector<std::string>& paths, bool evaluates = false) {
    (void)data_items(paths, evaluates);
  }

  // The memory of the tokens of the shortest text.
  static int64_t least_bytes(int64_t vocabulary) { return TokenSequence::block_bytes(vocabulary); }
  // The most that the tokens of `text_bytes` of text can take in memory; a token has at least one
  // byte of text.
  static int64_t most_bytes(int64_t vocabulary, int64_t text_bytes) {
    const int64_t block = TokenSequence::block_bytes(vocabulary);
    return 2 * block + ceil_div(text_bytes * TokenSequence::width_of(vocabulary), block) * block;
  }

  const TokenSource& train() const { return train_; }
  const TokenSource& held_out() const { return held_out_; }
  // Whether any of the data is records; plain text and token files have none.
  bool has_records() const;
  bool is_mixture() const { return !parts_.empty() && parts_.front().weight > 0; }
  int64_t token_count() const;
  int64_t cut_count() const;  // records longer than a sample, which lose their ends
  // Fingerprint of training and held-out data (see TokenSequence::fingerprint).
  uint64_t fingerprint() const;
  uint64_t train_fingerprint() const;     // of --data without its files for validation
  uint64_t held_out_fingerprint() const;  // of files for validation; 0 without any
  int64_t bytes() const;
  // Lines for the start of a run: which formats were detected, how much data there is, what of it
  // is learned, what is cut, and an example (data_report.h).
  const std::string& description() const { return description_; }

 private:
  // Data in one token sequence.
  struct Part {
    std::string name;
    double weight = 0;  // in a mixture; else 0
    ReadData data;
  };
  class Opener;

  Dataset() = default;

  static uint64_t with_parts(uint64_t hash, const std::vector<Part>& parts);
  uint64_t with_draws(uint64_t hash) const;

  std::vector<Part> parts_;
  std::vector<Part> held_out_parts_;  // empty: held-out data is a part of `parts_`
  TokenSource train_;
  TokenSource held_out_;
  std::string description_;
};

}  // namespace strata::data
