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
  int64_t vocabulary = 0;   // of the model: ids must be below it
  int64_t tail_tokens = 0;  // how far from the end of the sequence records are remembered
  int64_t room_bytes = 0;   // for the tokens and what reading takes beside them; 0: no limit
};

// A record with a prompt: where its first target is in the sequence, and its line in the file.
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

// Reads one file, or the texts of a directory, as data.h says. Warns of records that have nothing
// to learn, and of messages of a model without a chat template. Throws Error: kConfig naming file
// and line, byte or token; kDoesNotFit where the room is too small. `tokenizer` may be null for
// token files.
ReadData read_data(const std::string& path, const text::Tokenizer* tokenizer,
                   const ReadOptions& options);

Error bad_data(const std::string& path, const std::string& cause);

}  // namespace strata::data
