// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/chat_records.h"
#include "engine/data/data_read.h"
#include "engine/data/data_records.h"
#include "engine/text/tokenizer_cache.h"

namespace strata::data {

// What of a chat is not as it would be when the model is asked.
struct ChatTrouble {
  bool loses_words = false;  // calls of tools, or reasoning, that the chat template does not write
  bool leaves_prompt = false;  // MaskedChat::leaves_prompt
};

// Receives what lines of records, or blocks of a text, become.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // A line, which may be blank, and its size.
  virtual void begin_line(int64_t line, int64_t bytes) = 0;
  // The line's record cannot be read, and is left out.
  virtual void refuse_record(const std::string& cause) = 0;
  virtual void begin_record(bool has_lesson) = 0;
  virtual void begin_document(bool is_chat) = 0;
  virtual void begin_part(bool is_target) = 0;
  virtual void ids(const std::vector<int32_t>& ids) = 0;
  virtual void end_document() = 0;
  virtual void end_record(const ChatTrouble& trouble) = 0;
};

// The memory that one rendering of a chat may take while data is read; 0: no limit.
int64_t rendering_bytes(const ReadOptions& options);

// Makes tokens of records and texts. A pure function of what it is given. Memory: caches of at
// most 8.5 MiB, if it has its own, and templates of chats. Threads: one, several of these may
// share a tokenizer. Failure: Error that names the file and line; where bad records are skipped,
// the sink gets the cause instead, and nothing else of the record.
class RecordTokenizer {
 public:
  // `options` must outlive it. Of those without their own cache, one at a time may be in use.
  RecordTokenizer(const text::Tokenizer& tokenizer, const ReadOptions& options, bool has_own_cache);

  // A line of a file of records of this kind. A blank one has no record.
  void record(std::string_view item, const std::string& path, int64_t line, RecordKind kind,
              TokenSink& sink);
  // A block of a text, which is one part; `continues` for all but the first.
  void text(std::string_view block, bool continues, TokenSink& sink);

 private:
  struct Read {
    RecordText text;
    std::vector<templates::MaskedChat> chats;  // all of them, or none: they are long
  };

  Read read(std::string_view item, const std::string& path, int64_t line, RecordKind kind);
  void write(const Read& record, const std::string& where, TokenSink& sink);
  void chat(const templates::MaskedChat& chat, TokenSink& sink);
  void document(const std::vector<TextPart>& parts, const std::string& where, TokenSink& sink);
  void part(std::string_view text, bool is_target, bool continues, TokenSink& sink,
            bool& is_tokenizing);

  const text::Tokenizer& tokenizer_;
  const ReadOptions& options_;
  ChatRecords chats_;
  std::unique_ptr<text::TokenizerCache> cache_;  // null: the tokenizer's
};

}  // namespace strata::data
