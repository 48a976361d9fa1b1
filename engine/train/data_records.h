// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::config {
class Json;
}

namespace strata::train {

// What a JSON line holds.
enum class RecordKind {
  kText,              // {"text"}
  kPromptCompletion,  // {"prompt", "completion"}: strings, or lists of messages
  kMessages,          // {"messages": [{"role", "content"}]}
  kAlpaca,            // {"instruction", "input", "output"}
  kShareGpt,          // {"conversations": [{"from", "value"}]}
};
const char* name_of(RecordKind kind);

// A stretch of text that is tokenized on its own, and whether the loss looks at it.
struct Segment {
  std::string text;
  bool is_target;
};

// The kind of a record by its members; Error naming `where` (a file and a line) when it is none.
RecordKind kind_of_record(const config::Json& record, const std::string& where);

// Prompts, system and user messages are no targets; everything is where the record is plain text.
// Messages are rendered as ChatML. Throws Error naming `where` for a record of another kind or with
// a wrong member.
std::vector<Segment> segments_of_record(const config::Json& record, RecordKind kind,
                                        const std::string& where);
bool is_chat(const config::Json& record, RecordKind kind);

// Throws Error unless the template is absent or renders what we do: plain ChatML.
void check_chat_template(std::string_view jinja, const std::string& where);

// Calls use(record, where) for each line of the file that is not blank.
void for_each_record(const std::string& path,
                     const std::function<void(const config::Json&, const std::string&)>& use);

}  // namespace strata::train
