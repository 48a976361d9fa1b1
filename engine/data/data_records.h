// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/text_files.h"

namespace strata::config {
class Json;
}

namespace strata::data {

// What a JSON line holds.
enum class RecordKind {
  kText,              // {"text"}
  kPromptCompletion,  // {"prompt", "completion"}: strings, or lists of messages
  kMessages,          // {"messages": [{"role", "content"}]}
  kAlpaca,            // {"instruction", "input", "output"}
  kShareGpt,          // {"conversations": [{"from", "value"}]}
};
const char* name_of(RecordKind kind);

// A part of a text that is tokenized on its own, and whether the loss looks at it.
struct TextPart {
  std::string text;
  bool is_target;
};

// The kind of a record by its members; Error naming `where` (a file and a line) when it is none.
RecordKind kind_of_record(const config::Json& record, const std::string& where);

// What is wrong with a record of this kind that has nothing to learn: "an empty completion".
const char* name_of_idle(RecordKind kind);

struct RecordText {
  std::vector<TextPart> parts;
  bool is_chat = false;     // of messages, rendered as ChatML
  bool has_lesson = false;  // there is text that the loss looks at, markers aside
};

// Prompts, system and user messages are no targets; everything is where the record is plain text.
// Throws Error naming `where` for a record of another kind, with a wrong member, or with a role
// that is not known.
RecordText text_of_record(config::Json record, RecordKind kind, const std::string& where);

inline constexpr const char* kChatMlBegin = "<|im_start|>";

// Throws Error unless the template is absent or renders what we do: plain ChatML.
void check_chat_template(std::string_view jinja, const std::string& where);

// Whether the first line of a file is a record of a known kind.
bool begins_with_record(const std::string& path);

// Calls use(record, line, where) for each line of the file that is not blank; `check` as LineReader
// has it.
void for_each_record(
    const std::string& path, const text::LineReader::Check& check,
    const std::function<void(config::Json record, int64_t line, const std::string& where)>& use);

}  // namespace strata::data
