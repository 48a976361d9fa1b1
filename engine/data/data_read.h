// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/options.h"
#include "engine/data/data_paths.h"
#include "engine/data/data_records.h"
#include "engine/data/data_tokens.h"
#include "engine/data/packing.h"

namespace strata::text {
class Tokenizer;
}

namespace strata::data {

// Texts of up to this size are read at each start and held in memory; larger ones, if there is a
// directory for them, are kept there as tokens.
inline constexpr int64_t kTextBytesInMemory = 8 << 20;

// Where the tokens of large data are kept.
struct CacheOptions {
  std::string directory = {};  // empty: all tokens are held in memory
  bool is_given = false;       // by the user; else tokens stay in memory where it cannot be used
  std::string made_by = {};    // what decides tokens beside the options: the tokenizer
  int64_t memory_text_bytes = kTextBytesInMemory;
  // The least time for which another process that makes these tokens may write nothing.
  double patience_s = 60;
};

// Threads that make tokens of large data.
struct ReadThreads {
  int64_t count_max = 1;
  int64_t text_bytes = 2 << 20;  // the least that each is worth
};

struct ReadOptions {
  int64_t vocabulary = 0;          // of the model: ids must be below it
  int64_t length = 0;              // T; records in this many last tokens are remembered
  int64_t room_bytes = 0;          // limit of memory for the tokens and for reading; 0: no limit
  std::string chat_template = {};  // see ChatRecords
  std::string chat_date = {};
  config::SampleLayout samples = config::SampleLayout::kStream;
  RecordRules rules = {};
  bool learns_end = true;
  ReadThreads threads = {};
  std::vector<std::string> columns = {};  // what `rules` has of them
  CacheOptions cache = {};
};

// A record with a prompt: the position of its first target in the sequence, and its place.
struct RecordPlace {
  int64_t first_target = 0;
  int64_t line = 0;
  size_t file = 0;  // in ReadData::files
};

struct ReadData {
  std::vector<std::string> files;
  std::unique_ptr<TokenSequence> tokens;
  std::unique_ptr<Numbers> starts;   // where records begin; null for a stream
  std::unique_ptr<Packing> packing;  // of the records, where samples are packed
  std::string found;                 // "JSON lines of messages, 12 records"
  int64_t record_count = 0;
  int64_t split_count = 0;   // records that several samples of a stream share
  int64_t cut_count = 0;     // records longer than a sample
  int64_t cut_tokens = 0;    // what they lost
  int64_t target_count = 0;  // of all tokens
  // The tokens of the first record that teaches something; none without records.
  int64_t example_first = 0;
  int64_t example_count = 0;
  std::deque<RecordPlace> last_records;  // with a target in the last `length` tokens
  std::vector<std::string> warnings;     // of records without anything to learn
  std::string kept_in;                   // the folder of the tokens; empty: they are in memory
  std::optional<uint64_t> known_fingerprint;

  int64_t bytes() const;       // in memory
  int64_t file_bytes() const;  // of its arrays, where they are in files
  uint64_t fingerprint() const;
};

// Reads files one after another into one sequence, named `name` in messages. A token file must be
// the only one. Warns of records without anything to learn. Throws Error: kConfig that names file
// and line, byte or token; kDoesNotFit when `room_bytes` or the disk is too small. `tokenizer` may
// be null for token files.
ReadData read_data(const std::string& name, const std::vector<std::string>& files,
                   const text::Tokenizer* tokenizer, const ReadOptions& options);

}  // namespace strata::data
