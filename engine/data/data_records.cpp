// SPDX-License-Identifier: Apache-2.0
#include "engine/data/data_records.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/json.h"
#include "engine/text/text_files.h"

namespace strata::data {
namespace {

using config::Json;

constexpr int64_t kLineBytesMax = 64 * kMiB;

struct KindEntry {
  RecordKind kind;
  const char* name;
  const char* idle;
  std::array<const char*, 2> members;  // that identify the kind; may be null
};

// Roles of messages: the names of ShareGPT and others, and those of ChatML.
constexpr std::array<std::pair<const char*, const char*>, 5> kShareGptRoles = {
    {{"human", "user"},
     {"user", "user"},
     {"gpt", "assistant"},
     {"assistant", "assistant"},
     {"system", "system"}}};
constexpr std::array<const char*, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

constexpr std::array<KindEntry, 5> kKinds = {{
    {RecordKind::kText, "text", "an empty text", {"text", nullptr}},
    {RecordKind::kPromptCompletion,
     "prompt and completion",
     "an empty completion",
     {"prompt", "completion"}},
    {RecordKind::kMessages, "messages", "no assistant message with text", {"messages", nullptr}},
    {RecordKind::kAlpaca, "instruction and output", "an empty output", {"instruction", "output"}},
    {RecordKind::kShareGpt,
     "conversations",
     "no message from gpt with text",
     {"conversations", nullptr}},
}};

Error bad_record(const std::string& where, const std::string& cause) {
  return Error(ErrorCode::kConfig, fmt::format("read data: {}: {}", where, cause));
}

const std::string& text_of(const Json& record, const char* name, const std::string& where) {
  const Json* value = record.find(name);
  if (value == nullptr) throw bad_record(where, fmt::format("\"{}\" is missing (add it)", name));
  if (!value->is_string()) {
    throw bad_record(where, fmt::format("\"{}\" is {}, not a string (write it in quotes)", name,
                                        value->describe()));
  }
  return value->string();
}

bool has_text(const Json& record, const char* name) {
  const Json* value = record.find(name);
  return value != nullptr && value->is_string() && !value->string().empty();
}

// Neighbouring parts of one kind become one, so that fewer tokens are cut at their border.
void add_segment(RecordText* record, std::string text, bool is_target) {
  if (text.empty()) return;
  record->has_lesson = record->has_lesson || is_target;
  std::vector<TextPart>& parts = record->parts;
  if (!parts.empty() && parts.back().is_target == is_target) {
    parts.back().text += text;
  } else {
    parts.push_back({std::move(text), is_target});
  }
}

void add_message(RecordText* record, const std::string& role, const std::string& content,
                 bool may_be_target) {
  const bool is_target = may_be_target && role == "assistant";
  const bool has_lesson = record->has_lesson || (is_target && !content.empty());
  add_segment(record, fmt::format("{}{}\n", kChatMlBegin, role), false);
  add_segment(record, content + "<|im_end|>", is_target);
  add_segment(record, "\n", false);
  record->has_lesson = has_lesson;  // an end marker alone does not count
}

const Json::Array& messages_of(const Json& list, const std::string& where) {
  if (list.is_array() && !list.items().empty()) return list.items();
  throw bad_record(where, fmt::format("{} is not a list of messages", list.describe()));
}

void add_messages(RecordText* record, const Json& list, bool may_be_target,
                  const std::string& where) {
  for (const Json& message : messages_of(list, where)) {
    const std::string& role = text_of(message, "role", where);
    if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
      throw bad_record(where, fmt::format("the role \"{}\" is not known (name the roles {})", role,
                                          fmt::join(kRoles, ", ")));
    }
    const Json* calls = message.find("tool_calls");
    if (calls != nullptr && !calls->is_null()) {
      throw bad_record(where, "\"tool_calls\" are not supported (render them into \"content\")");
    }
    add_message(record, role, text_of(message, "content", where), may_be_target);
  }
}

void add_conversation(RecordText* record, const Json& list, const std::string& where) {
  for (const Json& message : messages_of(list, where)) {
    const std::string& from = text_of(message, "from", where);
    const auto role = std::find_if(kShareGptRoles.begin(), kShareGptRoles.end(),
                                   [&](const auto& entry) { return from == entry.first; });
    if (role == kShareGptRoles.end()) {
      throw bad_record(where,
                       fmt::format("messages from \"{}\" are not known (name them human, gpt "
                                   "or system)",
                                   from));
    }
    add_message(record, role->second, text_of(message, "value", where), true);
  }
}

// Jinja source without differences that do not change its output: white space within tags, and
// kinds of quotes.
std::string without_spaces(std::string_view jinja) {
  std::string result;
  for (const char c : jinja) {
    if (std::isspace(static_cast<unsigned char>(c))) continue;
    result += c == '"' ? '\'' : c;
  }
  return result;
}

const KindEntry& entry_of(RecordKind kind) {
  return *std::find_if(kKinds.begin(), kKinds.end(),
                       [&](const KindEntry& entry) { return entry.kind == kind; });
}

}  // namespace

const char* name_of(RecordKind kind) {
  return entry_of(kind).name;
}

const char* name_of_idle(RecordKind kind) {
  return entry_of(kind).idle;
}

RecordKind kind_of_record(const Json& record, const std::string& where) {
  if (!record.is_object()) throw bad_record(where, record.describe() + " is not a JSON object");
  for (const KindEntry& entry : kKinds) {
    const bool has_all = std::all_of(
        entry.members.begin(), entry.members.end(),
        [&](const char* name) { return name == nullptr || record.find(name) != nullptr; });
    if (has_all) return entry.kind;
  }
  throw bad_record(
      where,
      "not a known record (a line holds \"text\", \"prompt\" and \"completion\", \"messages\", "
      "\"instruction\" and \"output\", or \"conversations\")");
}

RecordText text_of_record(Json record, RecordKind kind, const std::string& where) {
  RecordText text;
  if (kind_of_record(record, where) != kind) {
    throw bad_record(where, fmt::format("holds {}, but the file began with {}",
                                        name_of(kind_of_record(record, where)), name_of(kind)));
  }
  switch (kind) {
    case RecordKind::kText:
      (void)text_of(record, "text", where);
      for (config::JsonMember& member : record.members()) {  // by reference: they may be long
        if (member.name == "text") add_segment(&text, std::move(member.value).string(), true);
      }
      break;
    case RecordKind::kPromptCompletion:
      text.is_chat = record.find("prompt")->is_array();
      if (text.is_chat) {
        add_messages(&text, *record.find("prompt"), false, where);
        add_messages(&text, *record.find("completion"), true, where);
      } else {
        add_segment(&text, text_of(record, "prompt", where), false);
        add_segment(&text, text_of(record, "completion", where), true);
      }
      break;
    case RecordKind::kMessages:
      text.is_chat = true;
      add_messages(&text, *record.find("messages"), true, where);
      break;
    case RecordKind::kAlpaca: {
      std::string prompt;
      for (const char* name : {"system", "instruction", "input"}) {
        if (has_text(record, name)) prompt += text_of(record, name, where) + "\n";
      }
      add_segment(&text, prompt, false);
      add_segment(&text, text_of(record, "output", where), true);
      break;
    }
    case RecordKind::kShareGpt:
      text.is_chat = true;
      add_conversation(&text, *record.find("conversations"), where);
      break;
  }
  return text;
}

void check_chat_template(std::string_view jinja, const std::string& where) {
  if (jinja.empty()) return;
  static constexpr std::array<std::string_view, 3> kChatMl = {
      "{%formessageinmessages%}{{'<|im_start|>'+message['role']+'\\n'+message['content']+'<|im_end|"
      ">'+'\\n'}}"
      "{%endfor%}{%ifadd_generation_prompt%}{{'<|im_start|>assistant\\n'}}{%endif%}",
      "{%formessageinmessages%}{{'<|im_start|>'+message['role']+'\\n'+message['content']+'<|im_end|"
      ">\\n'}}"
      "{%endfor%}{%ifadd_generation_prompt%}{{'<|im_start|>assistant\\n'}}{%endif%}",
      "{%formessageinmessages%}{{'<|im_start|>'+message.role+'\\n'+message.content+'<|im_end|>\\n'}"
      "}"
      "{%endfor%}{%ifadd_generation_prompt%}{{'<|im_start|>assistant\\n'}}{%endif%}"};
  const std::string given = without_spaces(jinja);
  if (std::find(kChatMl.begin(), kChatMl.end(), given) != kChatMl.end()) return;
  throw Error(
      ErrorCode::kConfig,
      fmt::format("render messages: {}: the model's chat template is not plain ChatML, which is "
                  "what Strata renders (render the messages with Transformers' "
                  "apply_chat_template and give them as {{\"prompt\", \"completion\"}})",
                  where));
}

bool begins_with_record(const std::string& path) {
  constexpr size_t kHeadBytes = 1 << 20;
  text::FileReader reader(path);
  std::string head(std::min<size_t>(kHeadBytes, static_cast<size_t>(reader.bytes())), '\0');
  head.resize(reader.read(head.data(), head.size()));
  const size_t begin = head.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos || head[begin] != '{') return false;
  const size_t end = head.find('\n', begin);
  if (end == std::string::npos && head.size() == kHeadBytes) {  // judge a long line by its start
    return head.compare(begin, 2, "{\"") == 0;
  }
  try {
    (void)kind_of_record(Json::parse(head.substr(begin, end - begin), path), path);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void for_each_record(const std::string& path, const text::LineReader::Check& check,
                     const std::function<void(Json, int64_t, const std::string&)>& use) {
  text::LineReader lines(path, [&](int64_t line, int64_t bytes) {
    check(line, bytes);
    if (bytes <= kLineBytesMax) return;
    throw bad_record(fmt::format("{}:{}", path, line),
                     fmt::format("the line has more than {} (cut the record into several)",
                                 format_bytes(kLineBytesMax)));
  });
  while (lines.next()) {
    if (lines.text().find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}:{}", path, lines.number());
    use(Json::parse(lines.text(), where, {.bytes = kLineBytesMax}), lines.number(), where);
  }
}

}  // namespace strata::data
