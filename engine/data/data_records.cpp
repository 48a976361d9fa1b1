// SPDX-License-Identifier: Apache-2.0
#include "engine/data/data_records.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/json.h"
#include "engine/text/text_files.h"

namespace strata::data {
namespace {

using config::Json;

constexpr int64_t kLineBytesMax = 64 * kMiB;
constexpr std::string_view kOneRecord =
    "write one JSON object in each line, such as {\"text\": \"...\"}; plain text is named .txt";

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

const Json::Array& messages_of(const Json& list, const std::string& where) {
  if (list.is_array() && !list.items().empty()) return list.items();
  throw bad_record(
      where,
      fmt::format(
          "{} is not a list of messages (write [{{\"role\": \"user\", \"content\": \"...\"}}])",
          list.is_array() ? "an empty list" : list.describe()));
}

// Whether a member of a message has something in it.
bool has_some(const Json& message, const char* name) {
  const Json* value = message.find(name);
  if (value == nullptr || value->is_null()) return false;
  if (value->is_string()) return !value->string().empty();
  return !value->is_array() || !value->items().empty();
}

// Text, a list of parts, or nothing beside calls of tools.
void check_content(const Json& message, const std::string& where) {
  const Json* content = message.find("content");
  if (content != nullptr && content->is_array()) return;
  if ((content == nullptr || content->is_null()) && has_some(message, "tool_calls")) return;
  (void)text_of(message, "content", where);
}

void add_messages(RecordText* record, const Json& list, const std::string& where) {
  for (const Json& message : messages_of(list, where)) {
    const std::string& role = text_of(message, "role", where);
    if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
      throw bad_record(where, fmt::format("the role \"{}\" is not known (name the roles {})", role,
                                          fmt::join(kRoles, ", ")));
    }
    if (role != "tool") check_content(message, where);
    record->has_lesson =
        record->has_lesson ||
        (role == "assistant" && (has_some(message, "content") || has_some(message, "tool_calls")));
    record->chat->messages.push_back(message);
  }
}

void add_conversation(RecordText* record, const Json& list, const std::string& where) {
  Json messages = Json::array();
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
    Json renamed = Json::object();
    renamed.set("role", Json(role->second));
    renamed.set("content", Json(text_of(message, "value", where)));
    messages.push_back(std::move(renamed));
  }
  add_messages(record, messages, where);
}

// What a record says beside its messages; the names are those that TRL reads.
ChatRecord chat_of(const Json& record) {
  const auto member = [&](const char* name) {
    const Json* value = record.find(name);
    return value == nullptr ? Json() : *value;
  };
  ChatRecord chat;
  chat.tools = member("tools");
  chat.documents = member("documents");
  chat.variables = member("chat_template_kwargs");
  return chat;
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
  if (!record.is_object())
    throw bad_record(where, record.describe() +
                                " is not a JSON object (write {\"text\": \"...\"} in each line)");
  for (const KindEntry& entry : kKinds) {
    const bool has_all = std::all_of(
        entry.members.begin(), entry.members.end(),
        [&](const char* name) { return name == nullptr || record.find(name) != nullptr; });
    if (has_all) return entry.kind;
  }
  throw bad_record(where,
                   "not a known record (write in each line \"text\", \"prompt\" and "
                   "\"completion\", \"messages\", "
                   "\"instruction\" and \"output\", or \"conversations\")");
}

RecordText text_of_record(Json record, RecordKind kind, const std::string& where) {
  RecordText text;
  if (kind_of_record(record, where) != kind) {
    throw bad_record(
        where,
        fmt::format("holds {}, but the file began with {} (put each kind in a file of its own)",
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
      if (record.find("prompt")->is_array()) {
        text.chat = chat_of(record);
        add_messages(&text, *record.find("prompt"), where);
        text.chat->prompt_count = text.chat->messages.items().size();
        text.has_lesson = false;
        add_messages(&text, *record.find("completion"), where);
      } else {
        add_segment(&text, text_of(record, "prompt", where), false);
        add_segment(&text, text_of(record, "completion", where), true);
      }
      break;
    case RecordKind::kMessages:
      text.chat = chat_of(record);
      add_messages(&text, *record.find("messages"), where);
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
      text.chat = chat_of(record);
      add_conversation(&text, *record.find("conversations"), where);
      break;
  }
  return text;
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
    use(Json::parse(lines.text(), where, {.bytes = kLineBytesMax}, kOneRecord), lines.number(),
        where);
  }
}

}  // namespace strata::data
