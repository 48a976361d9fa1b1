// SPDX-License-Identifier: Apache-2.0
#include "engine/train/data_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "engine/base/error.h"
#include "engine/config/json.h"
#include "engine/train/data_files.h"

namespace strata::train {
namespace {

using config::Json;

constexpr size_t kLineBytesMax = 64 << 20;

struct KindEntry {
  RecordKind kind;
  const char* name;
  std::array<const char*, 2> members;  // that tell the kind; null: none
};

constexpr std::array<KindEntry, 5> kKinds = {{
    {RecordKind::kText, "text", {"text", nullptr}},
    {RecordKind::kPromptCompletion, "prompt and completion", {"prompt", "completion"}},
    {RecordKind::kMessages, "messages", {"messages", nullptr}},
    {RecordKind::kAlpaca, "instruction and output", {"instruction", "output"}},
    {RecordKind::kShareGpt, "conversations", {"conversations", nullptr}},
}};

Error bad_record(const std::string& where, const std::string& cause) {
  return Error(ErrorCode::kConfig, fmt::format("read data: {}: {}", where, cause));
}

const std::string& text_of(const Json& record, const char* name, const std::string& where) {
  const Json* value = record.find(name);
  if (value == nullptr) throw bad_record(where, fmt::format("\"{}\" is missing", name));
  if (!value->is_string()) {
    throw bad_record(where, fmt::format("\"{}\" is {}, not a string", name, value->describe()));
  }
  return value->string();
}

bool has_text(const Json& record, const char* name) {
  const Json* value = record.find(name);
  return value != nullptr && value->is_string() && !value->string().empty();
}

// Neighbouring segments of one kind become one, so that fewer tokens are cut at their border.
void add_segment(std::vector<Segment>* segments, std::string_view text, bool is_target) {
  if (text.empty()) return;
  if (!segments->empty() && segments->back().is_target == is_target)
    segments->back().text += text;
  else
    segments->push_back({std::string(text), is_target});
}

void add_message(std::vector<Segment>* segments, const std::string& role,
                 const std::string& content, bool may_be_target) {
  const bool is_target = may_be_target && role == "assistant";
  add_segment(segments, fmt::format("<|im_start|>{}\n", role), false);
  add_segment(segments, content + "<|im_end|>", is_target);
  add_segment(segments, "\n", false);
}

void add_messages(std::vector<Segment>* segments, const Json& list, bool may_be_target,
                  const std::string& where) {
  if (!list.is_array() || list.items().empty()) {
    throw bad_record(where, fmt::format("{} is no list of messages", list.describe()));
  }
  for (const Json& message : list.items()) {
    if (message.find("tool_calls") != nullptr && !message.find("tool_calls")->is_null()) {
      throw bad_record(where, "\"tool_calls\" is not supported");
    }
    add_message(segments, text_of(message, "role", where), text_of(message, "content", where),
                may_be_target);
  }
}

void add_conversation(std::vector<Segment>* segments, const Json& list, const std::string& where) {
  static constexpr std::array<std::pair<const char*, const char*>, 5> kRoles = {
      {{"human", "user"},
       {"user", "user"},
       {"gpt", "assistant"},
       {"assistant", "assistant"},
       {"system", "system"}}};
  if (!list.is_array() || list.items().empty()) {
    throw bad_record(where, fmt::format("{} is no list of messages", list.describe()));
  }
  for (const Json& message : list.items()) {
    const std::string& from = text_of(message, "from", where);
    const auto role = std::find_if(kRoles.begin(), kRoles.end(),
                                   [&](const auto& entry) { return from == entry.first; });
    if (role == kRoles.end()) {
      throw bad_record(where, fmt::format("messages from \"{}\" are not supported", from));
    }
    add_message(segments, role->second, text_of(message, "value", where), true);
  }
}

// Jinja source without what does not change its output: white space within tags, and kinds of
// quotes.
std::string without_spaces(std::string_view jinja) {
  std::string result;
  for (const char c : jinja) {
    if (std::isspace(static_cast<unsigned char>(c))) continue;
    result += c == '"' ? '\'' : c;
  }
  return result;
}

}  // namespace

const char* name_of(RecordKind kind) {
  return std::find_if(kKinds.begin(), kKinds.end(),
                      [&](const KindEntry& entry) { return entry.kind == kind; })
      ->name;
}

RecordKind kind_of_record(const Json& record, const std::string& where) {
  if (!record.is_object()) throw bad_record(where, record.describe() + " is no JSON object");
  for (const KindEntry& entry : kKinds) {
    const bool has_all = std::all_of(
        entry.members.begin(), entry.members.end(),
        [&](const char* name) { return name == nullptr || record.find(name) != nullptr; });
    if (has_all) return entry.kind;
  }
  throw bad_record(
      where,
      "no known record (a line holds \"text\", \"prompt\" and \"completion\", \"messages\", "
      "\"instruction\" and \"output\", or \"conversations\")");
}

bool is_chat(const Json& record, RecordKind kind) {
  if (kind == RecordKind::kPromptCompletion) return record.find("prompt")->is_array();
  return kind == RecordKind::kMessages || kind == RecordKind::kShareGpt;
}

std::vector<Segment> segments_of_record(const Json& record, RecordKind kind,
                                        const std::string& where) {
  std::vector<Segment> segments;
  if (kind_of_record(record, where) != kind) {
    throw bad_record(where, fmt::format("holds {}, but the file began with {}",
                                        name_of(kind_of_record(record, where)), name_of(kind)));
  }
  switch (kind) {
    case RecordKind::kText:
      add_segment(&segments, text_of(record, "text", where), true);
      break;
    case RecordKind::kPromptCompletion:
      if (is_chat(record, kind)) {
        add_messages(&segments, *record.find("prompt"), false, where);
        add_messages(&segments, *record.find("completion"), true, where);
      } else {
        add_segment(&segments, text_of(record, "prompt", where), false);
        add_segment(&segments, text_of(record, "completion", where), true);
      }
      break;
    case RecordKind::kMessages:
      add_messages(&segments, *record.find("messages"), true, where);
      break;
    case RecordKind::kAlpaca: {
      std::string prompt;
      for (const char* name : {"system", "instruction", "input"}) {
        if (has_text(record, name)) prompt += text_of(record, name, where) + "\n";
      }
      add_segment(&segments, prompt, false);
      add_segment(&segments, text_of(record, "output", where), true);
      break;
    }
    case RecordKind::kShareGpt:
      add_conversation(&segments, *record.find("conversations"), where);
      break;
  }
  return segments;
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

void for_each_record(const std::string& path,
                     const std::function<void(const Json&, const std::string&)>& use) {
  FileReader reader(path);
  std::string buffer;
  int64_t line = 0;
  bool is_last = false;
  size_t searched = 0;
  while (!is_last) {
    const size_t kept = buffer.size();
    constexpr size_t kReadBytes = 1 << 20;
    buffer.resize(kept + kReadBytes);
    buffer.resize(kept + reader.read(buffer.data() + kept, kReadBytes));
    is_last = buffer.size() < kept + kReadBytes;
    if (is_last && !buffer.empty() && buffer.back() != '\n') buffer += '\n';
    size_t begin = 0;
    for (size_t end = buffer.find('\n', searched); end != std::string::npos;
         end = buffer.find('\n', begin)) {
      ++line;
      const std::string_view text = std::string_view(buffer).substr(begin, end - begin);
      begin = end + 1;
      if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const std::string where = fmt::format("{}:{}", path, line);
      use(Json::parse(text, where, {.bytes = kLineBytesMax}), where);
    }
    buffer.erase(0, begin);
    searched = buffer.size();
    if (buffer.size() > kLineBytesMax) {
      throw bad_record(fmt::format("{}:{}", path, line + 1),
                       fmt::format("a line of more than {} bytes", kLineBytesMax));
    }
  }
}

}  // namespace strata::train
