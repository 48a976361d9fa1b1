// SPDX-License-Identifier: Apache-2.0
#include "engine/session/prompts.h"

#include <fmt/format.h>

#include <fstream>

#include "engine/base/error.h"
#include "engine/config/json_stream.h"
#include "engine/data/chat_records.h"
#include "engine/text/text_files.h"
#include "engine/text/text_unicode.h"

namespace strata::session {
namespace {

using config::Json;

// Calls `use` with each line that is not empty, and its number.
template <class Use>
void each_line(const char* option, const std::string& path, const Use& use) {
  std::ifstream file(path);
  std::string line;
  int64_t count = 0;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (number == 1) text::drop_utf8_mark(line);
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (text::find_invalid_utf8(line) != std::string::npos) {
      throw Error(
          ErrorCode::kConfig,
          fmt::format("{}: {}:{}: not UTF-8 (convert the file to UTF-8)", option, path, number));
    }
    ++count;
    use(line, number);
  }
  if (!file.eof()) {
    throw Error(ErrorCode::kConfig,
                fmt::format("{}: {}: cannot be read (check the path)", option, path));
  }
  if (count == 0) {
    throw Error(ErrorCode::kConfig,
                fmt::format("{}: {}: has no prompts (write one in each line)", option, path));
  }
}

std::string text_of(const char* option, const Json& object, bool takes_chats,
                    const std::string& path, int64_t number) {
  const Json* prompt = object.is_object() ? object.find("prompt") : nullptr;
  if (prompt != nullptr && prompt->is_string()) return prompt->string();
  throw Error(ErrorCode::kConfig,
              fmt::format("{}: {}:{}: no text \"prompt\"{} (write {{\"prompt\": \"...\"}} in each "
                          "line{})",
                          option, path, number, takes_chats ? " and no list of \"messages\"" : "",
                          takes_chats ? "" : ", or give --chat for \"messages\""));
}

void require_question(const char* option, const Json& messages, const std::string& path,
                      int64_t number) {
  if (messages.items().empty()) {
    throw Error(ErrorCode::kConfig,
                fmt::format("{}: {}:{}: there is no message to answer (write one of the user)",
                            option, path, number));
  }
  const Json* role = messages.items().back().find("role");
  if (role == nullptr || !role->is_string() || role->string() != "assistant") return;
  throw Error(ErrorCode::kConfig,
              fmt::format("{}: {}:{}: the last message is the assistant's, so there is nothing to "
                          "answer (end with one of the user)",
                          option, path, number));
}

Json message(const char* role, const std::string& content) {
  Json one = Json::object();
  one.set("role", role);
  one.set("content", content);
  return one;
}

// Messages with that of --system before them.
Prompt chat_of(const Json& messages, const config::Options& options) {
  Prompt chat;
  chat.messages = Json::array();
  if (!options.system.empty()) chat.messages.push_back(message("system", options.system));
  for (const Json& one : messages.items()) chat.messages.push_back(one);
  const Json* last = messages.items().empty() ? nullptr : messages.items().back().find("content");
  if (last != nullptr && last->is_string()) chat.text = last->string();
  return chat;
}

}  // namespace

Prompt prompt_of(const std::string& text, const config::Options& options) {
  if (!options.chat) return {text, {}};
  Json messages = Json::array();
  messages.push_back(message("user", text));
  return chat_of(messages, options);
}

std::vector<Prompt> read_prompts(const char* option, const std::string& path, bool takes_chats,
                                 const config::Options& options) {
  const bool has_objects = path.ends_with(".jsonl");
  std::vector<Prompt> prompts;
  each_line(option, path, [&](const std::string& line, int64_t number) {
    const Json object = has_objects ? config::parse_json_at(number, line, path) : Json();
    const Json* messages = object.is_object() ? object.find("messages") : nullptr;
    if (takes_chats && messages != nullptr && messages->is_array()) {
      require_question(option, *messages, path, number);
      prompts.push_back(chat_of(*messages, options));
    } else {
      prompts.push_back(prompt_of(
          has_objects ? text_of(option, object, takes_chats, path, number) : line, options));
    }
  });
  return prompts;
}

namespace {

std::vector<int32_t> text_ids(const std::string& text, const text::Tokenizer& tokenizer,
                              const config::Options& options) {
  std::vector<int32_t> ids = tokenizer.encode(text);
  if (!ids.empty()) return ids;
  if (tokenizer.bos_id()) return {*tokenizer.bos_id()};
  if (tokenizer.eos_id()) return {*tokenizer.eos_id()};
  throw Error(ErrorCode::kConfig, "prompt: empty, and the tokenizer in " + options.model +
                                      " has no token for the start of a text (give a text)");
}

}  // namespace

PromptIds prompt_ids(const std::vector<Prompt>& prompts, const text::Tokenizer& tokenizer,
                     const config::Options& options) {
  data::ChatRecords chats(tokenizer.config(), options.chat_template, options.chat_date);
  const auto rendered_ids = [&](const std::string& text) {
    return tokenizer.encode(text, {.add_special = false});
  };
  PromptIds all;
  for (const Prompt& prompt : prompts) {
    if (prompt.messages.is_null()) {
      all.ids.push_back(text_ids(prompt.text, tokenizer, options));
      continue;
    }
    const std::string where = fmt::format("chat {}", all.ids.size() + 1);
    all.ids.push_back(rendered_ids(chats.render_prompt(prompt.messages, where)));
    if (all.answer_end.empty()) all.answer_end = chats.answer_end(prompt.messages, where);
  }
  all.answer_end_ids = rendered_ids(all.answer_end);
  return all;
}

}  // namespace strata::session
