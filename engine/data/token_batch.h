// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/record_tokens.h"

namespace strata::data {

// What a batch may hold; what does not fit is tokenized when it is handed over.
struct BatchLimits {
  size_t text_bytes = 0;
  size_t ids = 0;
  size_t lines = 0;
  size_t events = 0;
  int64_t bytes() const;  // of memory
};

// Lines of one file of records, or one block of a text, and the tokens that they become.
//
// make() does the work; hand_over() tells a sink exactly what RecordTokenizer would tell it,
// failures too. Memory: that of its limits, which is kept for the next lines. Threads: one at a
// time.
class TokenBatch {
 public:
  explicit TokenBatch(const BatchLimits& limits);

  // Empties it for lines of another file, which must outlive it; or for a block of a text.
  void begin(const std::string& path, RecordKind kind);
  void begin_text();
  bool has_room(std::string_view item) const;
  void add(std::string_view item, int64_t line);
  void add_block(std::string_view block, bool continues);
  size_t text_bytes() const { return text_.size(); }
  // Nothing of its file comes behind it.
  void end_file() { ends_file_ = true; }
  bool ends_file() const { return ends_file_; }

  void make(RecordTokenizer& tokenizer) noexcept;
  // `tokenizer` makes the tokens of what was more than the limits. Throws what a line's record
  // threw.
  void hand_over(RecordTokenizer& tokenizer, TokenSink& sink);

 private:
  enum class Kind : uint8_t {
    kLine,
    kRefused,
    kRecord,
    kDocument,
    kPart,
    kIds,
    kEndDocument,
    kEndRecord,
  };
  struct Event {
    Kind kind;
    bool flag;
    uint32_t count;  // of bytes or ids
    int64_t line;
  };
  struct Line {
    size_t begin;
    size_t bytes;
    int64_t number;
  };
  class Recorder;

  std::string_view text_of(const Line& line) const;
  void tokenize(RecordTokenizer& tokenizer, const Line& line, TokenSink& sink) const;
  void replay(TokenSink& sink) const;

  const BatchLimits limits_;
  const std::string* path_ = nullptr;
  RecordKind kind_ = RecordKind::kText;
  bool is_text_ = false;
  bool continues_ = false;
  bool ends_file_ = false;
  std::string text_;
  std::vector<Line> lines_;
  std::vector<Event> events_;
  std::vector<int32_t> ids_;
  size_t made_ = 0;            // lines whose tokens are there; the last may have failed
  std::string first_refusal_;  // the cause; those of other records are not kept
  std::exception_ptr failure_;
};

}  // namespace strata::data
