// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "engine/base/error.h"
#include "engine/data/data_tokens.h"

namespace strata::text {
class Tokenizer;
}

namespace strata::data {

struct ReadOptions {
  int64_t vocabulary = 0;          // of the model: ids must be below it
  int64_t tail_tokens = 0;         // records in this many last tokens are remembered
  int64_t room_bytes = 0;          // limit of memory for the tokens and for reading; 0: no limit
  std::string chat_template = {};  // see ChatRecords
};

// A record with a prompt: the position of its first target in the sequence, and its line in the
// file.
struct RecordPlace {
  int64_t first_target = 0;
  int64_t line = 0;
};

struct ReadData {
  std::unique_ptr<TokenSequence> tokens;
  std::string found;  // "JSON lines of messages, 12 records"
  int64_t record_count = 0;
  std::deque<RecordPlace> last_records;  // with a target in the last `tail_tokens` tokens
};

// Reads one file, or the texts of a directory, as data.h says. Warns of records without anything to
// learn. Throws Error: kConfig that names file
// and line, byte or token; kDoesNotFit when `room_bytes` is too small. `tokenizer` may be null for
// token files.
ReadData read_data(const std::string& path, const text::Tokenizer* tokenizer,
                   const ReadOptions& options);

Error bad_data(const std::string& path, const std::string& cause);

}  // namespace strata::data
