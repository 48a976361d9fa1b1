// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/json.h"
#include "engine/config/options.h"
#include "engine/data/record_columns.h"

namespace strata::data {

// The kinds of records in JSON lines.
enum class RecordKind {
  kText,              // {"text"}
  kPromptCompletion,  // {"prompt", "completion"}: strings, or lists of messages
  kMessages,          // {"messages": [{"role", "content"}]}
  kAlpaca,            // {"instruction", "input", "output"}
  kShareGpt,          // {"conversations": [{"from", "value"}]}
};
const char* name_of(RecordKind kind);

// A part of a text that is tokenized on its own, and whether it is a target of the loss.
struct TextPart {
  std::string text;
  bool is_target;
};

// How records are read.
struct RecordRules {
  RecordColumns columns = {};
  config::TrainOn train_on = config::TrainOn::kAnswers;
  bool as_chats = false;   // prompts and completions, and instructions and outputs, are chats
  bool skips_bad = false;  // see is_skipped()
};

// A mistake of a file or an option that shows in a record: it is not skipped with this record.
class NotOfTheRecord : public Error {
 public:
  explicit NotOfTheRecord(const Error& error) : Error(error) {}
};

// Whether the record that threw is left out.
bool is_skipped(const Error& error, const RecordRules& rules);

// The kind of a record, by its members; where some of these have been renamed, only by them. Throws
// Error that names `where` (file and line) when it has no known kind.
RecordKind kind_of_record(const config::Json& record, const std::string& where,
                          const RecordRules& rules = {});

// The same for the first record of a file, whose members have the file's own names, and must have
// all that were given.
RecordKind kind_of_first(const config::Json& record, const std::string& where,
                         const RecordRules& rules);

// A warning where the first record is of other kinds too; else empty.
std::string other_kinds_of(const config::Json& record, RecordKind kind, const RecordRules& rules);

// What makes a record of this kind useless: "an empty completion".
const char* name_of_idle(RecordKind kind);

// A chat, which the model's template renders (chat_records.h).
struct ChatRecord {
  config::Json messages;
  size_t prompt_count = 0;      // messages before the first that may be a target
  std::vector<size_t> skipped;  // messages of the assistant that are no targets, in order
  bool skips(size_t message) const { return std::ranges::binary_search(skipped, message); }
  bool learns_all = false;  // every message is a target
  config::Json tools;       // null where the record has none, as the rest
  config::Json documents;
  config::Json variables;  // of the template
};

struct RecordText {
  std::vector<TextPart> parts;     // of a record without messages
  std::optional<ChatRecord> chat;  // of one with messages
  bool has_lesson = false;         // some target is text, not only a marker
};

// Prompts, system and user messages are not targets, unless everything is to be learned, and
// neither is a message with "train": false or "weight": 0; in a record of plain text everything is
// a target. Throws Error that names `where` for a record of another kind, a wrong member, or an
// unknown role.
RecordText text_of_record(config::Json record, RecordKind kind, const std::string& where,
                          const RecordRules& rules = {});

// What a file begins with: a line that is a record of a known kind, another JSON object or an array
// of them, or anything else.
enum class Beginning : uint8_t { kRecord, kJson, kText };
Beginning beginning_of(const std::string& path);

}  // namespace strata::data
