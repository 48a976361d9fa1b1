// SPDX-License-Identifier: Apache-2.0
#include "engine/data/data_records.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/error.h"
#include "engine/config/json.h"
#include "engine/data/record_messages.h"
#include "engine/text/text_files.h"

namespace strata::data {
namespace {

using config::Json;

struct KindEntry {
  RecordKind kind;
  const char* name;
  const char* idle;
  std::array<const char*, 2> members;  // that identify the kind; may be null
};

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

// Leaves only the last answer to learn.
void learn_last(RecordText& record) {
  ChatRecord& chat = *record.chat;
  const auto& messages = chat.messages.items();
  size_t last = messages.size();
  for (size_t k = chat.prompt_count; k < messages.size(); ++k) {
    if (messages[k].find("role")->string() == "assistant") last = k;
  }
  const bool learns_last = !chat.skips(last);
  record.has_lesson =
      learns_last && last < messages.size() &&
      (has_some(messages[last], "content") || has_some(messages[last], "tool_calls"));
  chat.skipped.clear();
  for (size_t k = chat.prompt_count; k < messages.size(); ++k) {
    const bool is_answer = messages[k].find("role")->string() == "assistant";
    if (is_answer && (k != last || !learns_last)) chat.skipped.push_back(k);
  }
}

// What other trainings have in records: learned as text alone, it would be learned wrongly.
void refuse_other_lessons(const Json& record, const Place& at) {
  for (const char* name : {"images", "videos", "audios"}) {
    if (!has_some(record, name)) continue;
    throw bad_record(at,
                     fmt::format("its \"{}\" are not trained here, only text (leave such records "
                                 "out, or the member, if the text means the same without it)",
                                 name));
  }
  const Json* label = record.find("label");
  if (label != nullptr && label->boolean() == false) {
    throw bad_record(
        at,
        "its \"label\" is false, so the completion is not wanted (KTO), and preferences "
        "are not trained here (leave such records out)");
  }
}

// The list of tools, also where it is JSON in a text.
Json tools_of(const Json& tools, const Place& at) {
  if (!tools.is_string()) return tools;
  if (tools.string().find_first_not_of(" \t\r\n") == std::string::npos) return Json();
  try {
    return Json::parse(tools.string(), at.where);
  } catch (const Error& error) {
    throw bad_record(
        at, fmt::format("its \"tools\" is no JSON: {} (write a list of tools)", error.what()));
  }
}

// What a record says beside its messages; the names are those that TRL reads.
ChatRecord chat_of(const Json& record, const Place& at, const RecordRules& rules) {
  const auto member = [&](const char* name) {
    const Json* value = record.find(name);
    return value == nullptr ? Json() : *value;
  };
  ChatRecord chat;
  chat.messages = Json::array();
  chat.learns_all = rules.train_on == config::TrainOn::kEverything;
  chat.tools = tools_of(member("tools"), at);
  chat.documents = member("documents");
  chat.variables = member("chat_template_kwargs");
  return chat;
}

const KindEntry& entry_of(RecordKind kind) {
  return *std::find_if(kKinds.begin(), kKinds.end(),
                       [&](const KindEntry& entry) { return entry.kind == kind; });
}

// The kinds that a record's members fit, of those that renamed members name, if some do.
std::vector<const KindEntry*> kinds_of(const Json& record, const RecordRules& rules) {
  const auto is_named = [&](const KindEntry& entry) {
    return std::any_of(entry.members.begin(), entry.members.end(), [&](const char* name) {
      return name != nullptr && rules.columns.names(name);
    });
  };
  const bool are_named = std::any_of(kKinds.begin(), kKinds.end(), is_named);
  std::vector<const KindEntry*> kinds;
  for (const KindEntry& entry : kKinds) {
    if (are_named && !is_named(entry)) continue;
    const bool has_all = std::all_of(
        entry.members.begin(), entry.members.end(),
        [&](const char* name) { return name == nullptr || record.find(name) != nullptr; });
    if (has_all) kinds.push_back(&entry);
  }
  return kinds;
}

}  // namespace

bool is_skipped(const Error& error, const RecordRules& rules) {
  return rules.skips_bad && error.code() == ErrorCode::kConfig &&
         dynamic_cast<const NotOfTheRecord*>(&error) == nullptr;
}

const char* name_of(RecordKind kind) {
  return entry_of(kind).name;
}

const char* name_of_idle(RecordKind kind) {
  return entry_of(kind).idle;
}

RecordKind kind_of_record(const Json& record, const std::string& where, const RecordRules& rules) {
  const Place at = {where, rules.columns};
  if (!record.is_object())
    throw bad_record(
        at, record.describe() + " is not a JSON object (write {\"text\": \"...\"} in each line)");
  const std::vector<const KindEntry*> kinds = kinds_of(record, rules);
  if (!kinds.empty()) return kinds.front()->kind;
  if (record.find("chosen") != nullptr && record.find("rejected") != nullptr) {
    throw bad_record(
        at,
        "it has chosen and rejected answers, and preferences (DPO) are not trained here "
        "(name the answers to learn by --columns completion=chosen)");
  }
  std::vector<std::string_view> members;
  for (const config::JsonMember& member : record.members()) {
    members.push_back(rules.columns.theirs(member.name));
  }
  throw bad_record(
      at, fmt::format("not a known record: it has {} (write in each line \"text\", "
                      "\"prompt\" and \"completion\", \"messages\", \"instruction\" and "
                      "\"output\", or \"conversations\"; or name your own by --columns "
                      "prompt=NAME,completion=NAME)",
                      members.empty() ? "no member" : fmt::format("{}", fmt::join(members, ", "))));
}

RecordKind kind_of_first(const Json& record, const std::string& where, const RecordRules& rules) {
  rules.columns.require(record, where);
  return kind_of_record(rules.columns.renamed(record), where, rules);
}

std::string other_kinds_of(const Json& record, RecordKind kind, const RecordRules& rules) {
  for (const KindEntry* other : kinds_of(rules.columns.renamed(record), rules)) {
    if (other->kind == kind) continue;
    const char* member = other->members[other->members[1] != nullptr ? 1 : 0];
    return fmt::format("the records have {} and also {}: {} is read (give --columns {}={} for {})",
                       name_of(kind), other->name, name_of(kind), member, member, other->name);
  }
  return "";
}

namespace {

void add_prompt_completion(RecordText* text, const Json& record, const Place& at,
                           const RecordRules& rules) {
  const bool learns_prompt = rules.train_on == config::TrainOn::kEverything;
  if (!record.find("prompt")->is_array() && !rules.as_chats) {
    if (has_text(record, "system")) {
      throw bad_record(at,
                       "its \"system\" is read in chats alone (add --as-chats on, or put it into "
                       "the prompt)");
    }
    add_segment(text, text_of(record, "prompt", at), learns_prompt);
    return add_segment(text, text_of(record, "completion", at), true);
  }
  text->chat = chat_of(record, at, rules);
  if (!record.find("prompt")->is_array()) {
    add_system(text, record, at);
    add_message(text, message_of("user", text_of(record, "prompt", at)), at);
    return add_message(text, message_of("assistant", text_of(record, "completion", at)), at);
  }
  add_messages(text, record, "prompt", at);
  text->chat->prompt_count = learns_prompt ? 0 : text->chat->messages.items().size();
  text->chat->skipped.clear();
  text->has_lesson = false;
  add_messages(text, record, "completion", at);
}

// Earlier turns, as pairs of an instruction and an output: [["...", "..."]].
void add_history(RecordText* text, const Json& history, const Place& at) {
  for (const Json& turn : history.items()) {
    const bool is_pair = turn.is_array() && turn.items().size() == 2 &&
                         turn.items()[0].is_string() && turn.items()[1].is_string();
    if (!is_pair) {
      throw bad_record(at,
                       fmt::format("a turn of its \"history\" is {}, not a pair of texts (write "
                                   "[\"instruction\", \"output\"])",
                                   turn.describe()));
    }
    add_message(text, message_of("user", turn.items()[0].string()), at);
    add_message(text, message_of("assistant", turn.items()[1].string()), at);
  }
}

void add_alpaca_chat(RecordText* text, const Json& record, const Json* history, const Place& at,
                     const RecordRules& rules) {
  text->chat = chat_of(record, at, rules);
  add_system(text, record, at);
  if (history != nullptr) add_history(text, *history, at);
  std::string prompt = text_of(record, "instruction", at);
  if (has_text(record, "input")) prompt += "\n" + text_of(record, "input", at);
  add_message(text, message_of("user", std::move(prompt)), at);
  add_message(text, message_of("assistant", text_of(record, "output", at)), at);
}

void add_alpaca(RecordText* text, const Json& record, const Place& at, const RecordRules& rules) {
  const Json* history = record.find("history");
  if (history != nullptr && (!history->is_array() || history->items().empty())) history = nullptr;
  if (rules.as_chats) return add_alpaca_chat(text, record, history, at, rules);
  if (history != nullptr) {
    throw bad_record(at,
                     "its \"history\" is read in chats alone (add --as-chats on, or take the "
                     "history out)");
  }
  std::string prompt;
  for (const char* name : {"system", "instruction", "input"}) {
    if (has_text(record, name)) prompt += text_of(record, name, at) + "\n";
  }
  add_segment(text, prompt, rules.train_on == config::TrainOn::kEverything);
  add_segment(text, text_of(record, "output", at), true);
}

}  // namespace

RecordText text_of_record(Json record, RecordKind kind, const std::string& where,
                          const RecordRules& rules) {
  RecordText text;
  const Place at = {where, rules.columns};
  const RecordKind here = kind_of_record(record, where, rules);
  if (here != kind) {
    throw NotOfTheRecord(bad_record(
        at, fmt::format("holds {}, but the file began with {} (put each kind in a file of its own)",
                        name_of(here), name_of(kind))));
  }
  if (kind != RecordKind::kText) refuse_other_lessons(record, at);
  switch (kind) {
    case RecordKind::kText:
      (void)text_of(record, "text", at);
      for (config::JsonMember& member : record.members()) {  // by reference: they may be long
        if (member.name == "text") add_segment(&text, std::move(member.value).string(), true);
      }
      break;
    case RecordKind::kPromptCompletion:
      add_prompt_completion(&text, record, at, rules);
      break;
    case RecordKind::kAlpaca:
      add_alpaca(&text, record, at, rules);
      break;
    case RecordKind::kMessages:
    case RecordKind::kShareGpt:
      text.chat = chat_of(record, at, rules);
      add_messages(&text, record, kind == RecordKind::kMessages ? "messages" : "conversations", at);
      break;
  }
  if (text.chat && rules.train_on == config::TrainOn::kLastAnswer) learn_last(text);
  if (text.chat && text.chat->learns_all && !text.chat->skipped.empty()) {
    throw bad_record(
        at,
        fmt::format(
            "message {} must not be learned, but --train-on is everything (leave out --train-on)",
            text.chat->skipped.front() + 1));
  }
  return text;
}

namespace {

// Whether a text could be a JSON array whose first item is an object with members.
bool begins_with_array_of_objects(std::string_view text) {
  const size_t item = text.find_first_not_of(" \t\r\n", 1);
  if (item == std::string_view::npos || text[item] != '{') return false;
  const size_t name = text.find_first_not_of(" \t\r\n", item + 1);
  return name != std::string_view::npos && text[name] == '"';
}

}  // namespace

Beginning beginning_of(const std::string& path) {
  constexpr size_t kHeadBytes = 1 << 20;
  text::FileReader reader(path);
  std::string head(std::min<size_t>(kHeadBytes, static_cast<size_t>(reader.bytes())), '\0');
  head.resize(reader.read(head.data(), head.size()));
  const size_t begin = head.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return Beginning::kText;
  if (head[begin] == '[') {
    const bool objects = begins_with_array_of_objects(std::string_view(head).substr(begin));
    return objects ? Beginning::kJson : Beginning::kText;
  }
  if (head[begin] != '{') return Beginning::kText;
  const size_t end = head.find('\n', begin);
  if (end == std::string::npos && head.size() == kHeadBytes) {  // judge a long line by its start
    return head.compare(begin, 2, "{\"") == 0 ? Beginning::kRecord : Beginning::kText;
  }
  Json json;
  try {
    json = Json::parse(head.substr(begin, end - begin), path);
  } catch (const Error&) {
    return Beginning::kText;
  }
  try {
    (void)kind_of_record(json, path);
    return Beginning::kRecord;
  } catch (const Error&) {
    return Beginning::kJson;
  }
}

}  // namespace strata::data
