// SPDX-License-Identifier: Apache-2.0
#include "engine/data/chat_words.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "engine/template/masked_chat.h"

namespace strata::data {
namespace {

using config::Json;

std::string_view text_in(const Json* object, const char* name) {
  const Json* value = object == nullptr ? nullptr : object->find(name);
  return value != nullptr && value->is_string() ? std::string_view(value->string()) : "";
}

// The names of functions in a list of tools or of calls of them.
void add_names(const Json* list, std::vector<std::string_view>& words) {
  if (list == nullptr || !list->is_array()) return;
  for (const Json& tool : list->items()) {
    const Json* function = tool.find("function");
    words.push_back(text_in(function != nullptr ? function : &tool, "name"));
  }
}

// The beginning of the first line, since a template may change white space.
std::string_view first_words(std::string_view text) {
  constexpr size_t kEnough = 40;
  const size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  text = text.substr(begin, std::min(kEnough, text.find_first_of("\r\n", begin) - begin));
  return text.substr(0, text.find_last_not_of(" \t") + 1);
}

// The reasoning of an answer, which may be in its text.
void add_reasoning(const Json& message, std::vector<std::string_view>& words) {
  for (const char* name : templates::kReasoningMembers) {
    words.push_back(first_words(text_in(&message, name)));
  }
  constexpr std::string_view kOpened = "<think>";
  const std::string_view content = text_in(&message, "content");
  const size_t begin = std::min(content.find_first_not_of(" \t\r\n"), content.size());
  if (content.substr(begin).starts_with(kOpened)) {
    words.push_back(first_words(content.substr(begin + kOpened.size())));
  }
}

}  // namespace

ChatWords::ChatWords(const ChatRecord& record) {
  add_names(&record.tools, words_);
  for (size_t k = 0; k < record.messages.items().size(); ++k) {
    const Json& message = record.messages.items()[k];
    add_names(message.find("tool_calls"), words_);
    words_.push_back(text_in(message.find("function_call"), "name"));
    const bool is_learned = k >= record.prompt_count && !record.skips(k);
    if (is_learned && text_in(&message, "role") == "assistant") add_reasoning(message, words_);
  }
}

void ChatWords::look_in(std::string_view text) {
  std::erase_if(words_, [&](std::string_view word) { return text.find(word) != text.npos; });
}

}  // namespace strata::data
