// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/config/options.h"
#include "engine/data/data_tokens.h"
#include "engine/text/tokenizer.h"

namespace strata::data {

struct WriterOptions {
  int64_t length = 0;      // T
  int64_t room_bytes = 0;  // limit of memory for the tokens; 0: no limit
  bool learns_end = true;  // whether the tokenizer's end token is a target where text is one
};

// Appends documents to a token sequence: prefix, text, suffix, end token; of chats only the text,
// because their template writes all markers. Texts come as their tokens.
//
// With samples of records, a document is cut after T + 1 tokens, and one without a target in these
// is taken back. Failure: Error (kDoesNotFit) when the tokens need more than `room_bytes`.
class DocumentWriter {
 public:
  // `starts` receives where documents begin; null where samples are a stream.
  DocumentWriter(const text::Tokenizer& tokenizer, TokenSequence& tokens, Numbers* starts,
                 const WriterOptions& options)
      : tokenizer_(tokenizer),
        tokens_(tokens),
        starts_(starts),
        options_(options),
        end_id_(tokenizer.eos_id()) {}

  void begin(bool prefix_is_target);
  void begin_chat();
  // Tokens of its text.
  void add(const std::vector<int32_t>& ids, bool are_targets);
  // Both return whether the document is kept.
  bool end();
  bool end_chat();

  // Where the document that was written last begins.
  int64_t start() const { return start_; }
  int64_t cut_count() const { return cut_count_; }    // documents that were cut
  int64_t cut_tokens() const { return cut_tokens_; }  // tokens that they lost
  // Documents of a stream that more than one sample has.
  int64_t split_count() const { return split_count_; }

 private:
  bool keeps_records() const { return starts_ != nullptr; }
  void append(const std::vector<int32_t>& ids, bool are_targets);
  bool finish();
  bool keep();
  void require_room() const;

  // Constant after construction.
  const text::Tokenizer& tokenizer_;
  TokenSequence& tokens_;
  Numbers* const starts_;
  const WriterOptions options_;
  const std::optional<int32_t> end_id_;

  int64_t start_ = 0;
  int64_t cut_count_ = 0;
  int64_t cut_tokens_ = 0;
  int64_t split_count_ = 0;
};

}  // namespace strata::data
