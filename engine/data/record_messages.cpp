// SPDX-License-Identifier: Apache-2.0
#include "engine/data/record_messages.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "engine/text/text_unicode.h"

namespace strata::data {
namespace {

using config::Json;

// Roles of messages: the names of ShareGPT and others, and those of ChatML.
constexpr std::array<std::pair<const char*, const char*>, 13> kShareGptRoles = {
    {{"human", "user"},
     {"user", "user"},
     {"gpt", "assistant"},
     {"chatgpt", "assistant"},
     {"bing", "assistant"},
     {"bard", "assistant"},
     {"assistant", "assistant"},
     {"system", "system"},
     {"function_call", "assistant"},
     {"observation", "tool"},
     {"function", "tool"},
     {"tool", "tool"},
     {"developer", "developer"}}};
constexpr std::array<const char*, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

}  // namespace

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

bool has_some(const Json& object, const char* name) {
  const Json* value = object.find(name);
  if (value == nullptr || value->is_null()) return false;
  if (value->is_string()) return !value->string().empty();
  return !value->is_array() || !value->items().empty();
}

namespace {

// A list of parts may have what is not text, which templates write as if it were seen.
void check_parts(const Json& parts, const Place& at) {
  for (const Json& part : parts.items()) {
    const Json* type = part.is_object() ? part.find("type") : nullptr;
    if (type == nullptr || !type->is_string()) continue;
    const bool is_media = std::ranges::any_of(
        std::array{"image", "video", "audio"},
        [&](const char* medium) { return type->string().find(medium) != std::string::npos; });
    if (!is_media) continue;
    throw bad_record(at, fmt::format("a message has a part of type \"{}\", and only text is "
                                     "trained (leave such parts or records out)",
                                     type->string()));
  }
}

// Text, a list of parts, or nothing beside calls of tools.
void check_content(const Json& message, const Place& at) {
  const Json* content = message.find("content");
  if (content != nullptr && content->is_array()) return check_parts(*content, at);
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

// What others call a role, in letters of any case; null for a name that nobody uses.
const char* role_of(const std::string& given) {
  const std::string name = text::to_lower_case(given);
  const auto entry = std::find_if(kShareGptRoles.begin(), kShareGptRoles.end(),
                                  [&](const auto& one) { return name == one.first; });
  return entry == kShareGptRoles.end() ? nullptr : entry->second;
}

bool is_system(const Json& message) {
  const Json* given = message.find("role");
  const char* role = given != nullptr && given->is_string() ? role_of(given->string()) : nullptr;
  return role != nullptr && role == std::string_view("system");
}

// What ShareGPT's tools are called with: one {"name": ..., "arguments": {...}}, or a list of them.
Json calls_of(const std::string& text, const Place& at) {
  Json given;
  try {
    given = Json::parse(text, at.where);
  } catch (const Error&) {
  }
  Json calls = Json::array();
  if (!given.is_array()) given = Json(Json::Array{std::move(given)});
  for (const Json& call : given.items()) {
    if (!call.is_object() || call.find("name") == nullptr) {
      throw bad_record(at,
                       "a message from function_call is no call (write {\"name\": \"...\", "
                       "\"arguments\": {...}} as its value)");
    }
    Json one = Json::object();
    one.set("type", "function");
    one.set("function", call);
    calls.push_back(std::move(one));
  }
  return calls;
}

// A message of ShareGPT's names, which says who it is from.
Json from_share_gpt(const Json& message, const Place& at) {
  const std::string& from = text_of(message, "from", at);
  const char* role = role_of(from);
  if (role == nullptr) {
    throw bad_record(at, fmt::format("messages from \"{}\" are not known (name them human, gpt, "
                                     "system, function_call or observation)",
                                     from));
  }
  Json renamed = Json::object();
  renamed.set("role", Json(role));
  if (text::to_lower_case(from) == "function_call") {
    renamed.set("tool_calls", calls_of(text_of(message, "value", at), at));
  } else {
    renamed.set("content", Json(text_of(message, "value", at)));
  }
  for (const char* name : {"train", "weight"}) {
    if (const Json* value = message.find(name)) renamed.set(name, *value);
  }
  return renamed;
}

const Json::Array& messages_of(const Json& record, const char* name, const Place& at) {
  const Json& list = *record.find(name);
  if (list.is_array() && !list.items().empty()) return list.items();
  throw bad_record(at, fmt::format("\"{}\" is {}, not a list of messages (write [{{\"role\": "
                                   "\"user\", \"content\": \"...\"}}])",
                                   at.columns.theirs(name),
                                   list.is_array() ? "an empty list" : list.describe()));
}

}  // namespace

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
  // Tables have nulls for all that a message lacks; beside calls of tools it means no text.
  std::erase_if(message.members(), [](const config::JsonMember& member) {
    return member.value.is_null() && member.name != "content";
  });
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

Json message_of(const char* role, std::string text) {
  Json message = Json::object();
  message.set("role", Json(role));
  message.set("content", Json(std::move(text)));
  return message;
}

void add_system(RecordText* text, const Json& record, const Place& at) {
  if (!has_text(record, "system")) return;
  add_message(text, message_of("system", text_of(record, "system", at)), at);
}

void add_messages(RecordText* text, const Json& record, const char* name, const Place& at) {
  for (const Json& given : messages_of(record, name, at)) {
    const bool is_share_gpt = given.find("from") != nullptr && given.find("role") == nullptr;
    Json message = is_share_gpt ? from_share_gpt(given, at) : given;
    const bool is_first = text->chat->messages.items().empty();
    if (is_first && !is_system(message)) add_system(text, record, at);
    add_message(text, std::move(message), at);
  }
}

}  // namespace strata::data
