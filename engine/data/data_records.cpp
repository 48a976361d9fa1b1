// SPDX-License-Identifier: Apache-2.0
#include "engine/data/data_records.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/error.h"
#include "engine/config/json.h"
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

// Roles of messages: the names of ShareGPT and others, and those of ChatML.
constexpr std::array<std::pair<const char*, const char*>, 11> kShareGptRoles = {
    {{"human", "user"},
     {"user", "user"},
     {"gpt", "assistant"},
     {"chatgpt", "assistant"},
     {"bing", "assistant"},
     {"bard", "assistant"},
     {"assistant", "assistant"},
     {"system", "system"},
     {"observation", "tool"},
     {"tool", "tool"},
     {"developer", "developer"}}};
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

// A record, and what its file calls what we read.
struct Place {
  const std::string& where;  // file and line
  const RecordColumns& columns;
};

Error bad_record(const Place& at, const std::string& cause) {
  return Error(ErrorCode::kConfig, fmt::format("read data: {}: {}", at.where, cause));
}

const std::string& text_of(const Json& record, const char* name, const Place& at) {
  const Json* value = record.find(name);
  if (value == nullptr) {
    throw bad_record(at, fmt::format("\"{}\" is missing (add it)", at.columns.theirs(name)));
  }
  if (value->is_string()) return value->string();
  const bool is_list = value->is_array() || value->is_object();
  throw bad_record(
      at, fmt::format("\"{}\" is {}, not a string ({})", at.columns.theirs(name), value->describe(),
                      value->is_null() ? "write \"\" where there is no text, or take the record out"
                      : is_list        ? "write a text in quotes"
                                       : "write it in quotes"));
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

const Json::Array& messages_of(const Json& record, const char* name, const Place& at) {
  const Json& list = *record.find(name);
  if (list.is_array() && !list.items().empty()) return list.items();
  throw bad_record(at, fmt::format("\"{}\" is {}, not a list of messages (write [{{\"role\": "
                                   "\"user\", \"content\": \"...\"}}])",
                                   at.columns.theirs(name),
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
void check_content(const Json& message, const Place& at) {
  const Json* content = message.find("content");
  if (content != nullptr && content->is_array()) return;
  if ((content == nullptr || content->is_null()) && has_some(message, "tool_calls")) return;
  (void)text_of(message, "content", at);
}

// What "train" or "weight" of a message says: whether to learn it. Takes them out of it.
std::optional<bool> take_weight(Json& message, size_t number, const Place& at) {
  std::optional<bool> learns;
  for (const char* name : {"train", "weight"}) {
    const Json* value = message.find(name);
    if (value == nullptr || value->is_null()) continue;
    const std::optional<double> weight = value->number();
    learns = value->boolean();
    if (weight == 0.0 || weight == 1.0) learns = weight == 1.0;
    if (!learns) {
      throw bad_record(
          at, fmt::format(
                  "the {} of message {} is {}, and only 0 and 1 are supported (give one of them)",
                  name, number, value->describe()));
    }
  }
  std::erase_if(message.members(), [](const config::JsonMember& member) {
    return member.name == "train" || member.name == "weight";
  });
  return learns;
}

// What others call a role; null for a name that nobody uses.
const char* role_of(const std::string& name) {
  const auto entry = std::find_if(kShareGptRoles.begin(), kShareGptRoles.end(),
                                  [&](const auto& one) { return name == one.first; });
  return entry == kShareGptRoles.end() ? nullptr : entry->second;
}

// Adds a message, and says whether it has something to learn.
void add_message(RecordText* record, Json message, const Place& at) {
  ChatRecord& chat = *record->chat;
  const size_t place = chat.messages.items().size();
  std::string role = text_of(message, "role", at);
  if (const char* known = role_of(role); at.columns.names("role") && known != nullptr) {
    role = known;  // records with names of their own often have ShareGPT's roles
    message.set("role", Json(role));
  }
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    throw bad_record(at, fmt::format("the role \"{}\" is not known (name the roles {})", role,
                                     fmt::join(kRoles, ", ")));
  }
  if (role != "tool") check_content(message, at);
  const std::optional<bool> weight = take_weight(message, place + 1, at);
  const bool is_answer = role == "assistant";
  if (!is_answer && weight.value_or(false)) {
    throw bad_record(at,
                     fmt::format("message {} of the {} has \"train\" or \"weight\", but only what "
                                 "the assistant says is learned (remove it from this message)",
                                 place + 1, role));
  }
  const bool has_lesson =
      is_answer && (has_some(message, "content") || has_some(message, "tool_calls"));
  if (is_answer && !weight.value_or(true)) {
    chat.skipped.push_back(place);
  } else {
    record->has_lesson = record->has_lesson || has_lesson || chat.learns_all;
  }
  chat.messages.push_back(std::move(message));
}

// A message of ShareGPT's names, which says who it is from.
Json from_share_gpt(const Json& message, const Place& at) {
  const std::string& from = text_of(message, "from", at);
  const char* role = role_of(from);
  if (role == nullptr) {
    throw bad_record(at, fmt::format("messages from \"{}\" are not known (name them human, gpt "
                                     "or system)",
                                     from));
  }
  Json renamed = Json::object();
  renamed.set("role", Json(role));
  renamed.set("content", Json(text_of(message, "value", at)));
  for (const char* name : {"train", "weight"}) {
    if (const Json* value = message.find(name)) renamed.set(name, *value);
  }
  return renamed;
}

void add_messages(RecordText* text, const Json& record, const char* name, const Place& at) {
  for (const Json& message : messages_of(record, name, at)) {
    const bool is_share_gpt = message.find("from") != nullptr && message.find("role") == nullptr;
    add_message(text, is_share_gpt ? from_share_gpt(message, at) : message, at);
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
  const bool learns_last =
      std::find(chat.skipped.begin(), chat.skipped.end(), last) == chat.skipped.end();
  record.has_lesson =
      learns_last && last < messages.size() &&
      (has_some(messages[last], "content") || has_some(messages[last], "tool_calls"));
  chat.skipped.clear();
  for (size_t k = chat.prompt_count; k < messages.size(); ++k) {
    const bool is_answer = messages[k].find("role")->string() == "assistant";
    if (is_answer && (k != last || !learns_last)) chat.skipped.push_back(k);
  }
}

// What a record says beside its messages; the names are those that TRL reads.
ChatRecord chat_of(const Json& record, const RecordRules& rules) {
  const auto member = [&](const char* name) {
    const Json* value = record.find(name);
    return value == nullptr ? Json() : *value;
  };
  ChatRecord chat;
  chat.messages = Json::array();
  chat.learns_all = rules.train_on == config::TrainOn::kEverything;
  chat.tools = member("tools");
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

Json message_of(const char* role, std::string text) {
  Json message = Json::object();
  message.set("role", Json(role));
  message.set("content", Json(std::move(text)));
  return message;
}

void add_prompt_completion(RecordText* text, const Json& record, const Place& at,
                           const RecordRules& rules) {
  const bool learns_prompt = rules.train_on == config::TrainOn::kEverything;
  if (!record.find("prompt")->is_array() && !rules.as_chats) {
    add_segment(text, text_of(record, "prompt", at), learns_prompt);
    return add_segment(text, text_of(record, "completion", at), true);
  }
  text->chat = chat_of(record, rules);
  if (!record.find("prompt")->is_array()) {
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
  text->chat = chat_of(record, rules);
  if (has_text(record, "system")) {
    add_message(text, message_of("system", text_of(record, "system", at)), at);
  }
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
    throw bad_record(
        at, fmt::format("holds {}, but the file began with {} (put each kind in a file of its own)",
                        name_of(here), name_of(kind)));
  }
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
      text.chat = chat_of(record, rules);
      if (kind == RecordKind::kShareGpt && has_text(record, "system")) {
        add_message(&text, message_of("system", text_of(record, "system", at)), at);
      }
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

}  // namespace strata::data
