// SPDX-License-Identifier: Apache-2.0
#include "engine/session/prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/config_file.h"
#include "engine/config/json_stream.h"
#include "engine/data/chat_records.h"
#include "engine/data/record_messages.h"
#include "engine/text/text_files.h"
#include "engine/text/text_unicode.h"

namespace strata::session {
namespace {

using config::Json;

constexpr size_t kFileBytesMax = 32 << 20;
constexpr size_t kSampleBytesMax = 1 << 20;  // beside a run, whose budget has them as tokens alone
constexpr size_t kTokensMax = 4 << 20;       // of a prompt; more than any model has positions
constexpr int64_t kPromptBytes = 640;        // of a prompt and its text, tokens and writer
constexpr int64_t kChatBytes = 4096;         // and of its messages, apart from their text

// Calls `use` with each line that is not empty, and its number.
template <class Use>
void each_line(const char* option, const std::string& path, size_t bytes_max, const Use& use) {
  std::string text;
  try {
    text = config::read_config_file(path, bytes_max);
  } catch (const Error& error) {
    throw Error(ErrorCode::kConfig, fmt::format("{}: {}", option, error.what()));
  }
  text::drop_utf8_mark(text);
  int64_t number = 0;
  int64_t count = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
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

// A record of messages, with that of --system before them.
Prompt chat_of(const Json& record, const std::string& where, const config::Options& options) {
  Json asked = Json::object();
  for (const char* name : {"tools", "documents", "chat_template_kwargs", "system"}) {
    if (const Json* value = record.find(name)) asked.set(name, *value);
  }
  Json messages = Json::array();
  if (!options.system.empty()) messages.push_back(data::message_of("system", options.system));
  for (const Json& one : record.find("messages")->items()) messages.push_back(one);
  asked.set("messages", std::move(messages));
  Prompt prompt;
  prompt.where = where;
  prompt.chat = data::text_of_record(std::move(asked), data::RecordKind::kMessages, where).chat;
  const Json* last = prompt.chat->messages.items().back().find("content");
  if (last != nullptr && last->is_string()) prompt.text = last->string();
  return prompt;
}

}  // namespace

int64_t held_bytes(const Prompt& prompt) {
  // The text, its tokens, and the copy that is tokenized.
  return kPromptBytes + 6 * std::ssize(prompt.text) + (prompt.chat ? kChatBytes : 0);
}

Prompt prompt_of(const std::string& text, const config::Options& options) {
  if (!options.chat) return {text, {}, {}};
  Json record = Json::object();
  record.set("messages", Json(Json::Array{data::message_of("user", text)}));
  return chat_of(record, "--chat", options);
}

namespace {

std::vector<Prompt> read_at_most(size_t bytes_max, const char* option, const std::string& path,
                                 bool takes_chats, const config::Options& options,
                                 int64_t room_bytes) {
  if (path.ends_with(".json")) {
    throw Error(ErrorCode::kConfig,
                fmt::format("{}: {}: a JSON file (write an object in each line of a .jsonl file)",
                            option, path));
  }
  const bool has_objects = path.ends_with(".jsonl");
  std::vector<Prompt> prompts;
  int64_t bytes = 0;
  each_line(option, path, bytes_max, [&](const std::string& line, int64_t number) {
    const Json object = has_objects ? config::parse_json_at(number, line, path) : Json();
    const Json* messages = object.is_object() ? object.find("messages") : nullptr;
    if (takes_chats && messages != nullptr && messages->is_array()) {
      require_question(option, *messages, path, number);
      prompts.push_back(chat_of(object, fmt::format("{}:{}", path, number), options));
    } else {
      prompts.push_back(prompt_of(
          has_objects ? text_of(option, object, takes_chats, path, number) : line, options));
    }
    bytes += held_bytes(prompts.back());
    if (bytes <= room_bytes) return;
    throw Error(ErrorCode::kDoesNotFit,
                fmt::format("{}: {}:{}: the prompts up to this one take all of the {} of "
                            "--host-memory (raise it, or divide the file)",
                            option, path, number, format_bytes(room_bytes)));
  });
  return prompts;
}

}  // namespace

std::vector<Prompt> read_prompts(const char* option, const std::string& path, bool takes_chats,
                                 const config::Options& options, int64_t room_bytes) {
  return read_at_most(kFileBytesMax, option, path, takes_chats, options, room_bytes);
}

std::vector<Prompt> read_sample_prompts(const config::Options& options) {
  const std::string& path = options.sample_prompts;
  std::error_code ignored;
  if (std::filesystem::is_fifo(path, ignored)) {
    throw Error(ErrorCode::kConfig,
                fmt::format("sample-prompts: {}: it is a pipe, which a resumed run cannot read "
                            "again (write the prompts to a file)",
                            path));
  }
  return read_at_most(kSampleBytesMax, "sample-prompts", path, true, options, INT64_MAX);
}

namespace {

std::vector<int32_t> ids_of(const std::string& text, bool add_special,
                            const text::Tokenizer& tokenizer) {
  std::vector<int32_t> all;
  tokenizer.encode(text, {.add_special = add_special}, [&](const std::vector<int32_t>& ids) {
    all.insert(all.end(), ids.begin(), ids.end());
    if (all.size() <= kTokensMax) return;
    throw Error(ErrorCode::kConfig,
                fmt::format("prompt: it has more than {} tokens (shorten it)", kTokensMax));
  });
  return all;
}

std::vector<int32_t> text_ids(const std::string& text, const text::Tokenizer& tokenizer,
                              const config::Options& options) {
  std::vector<int32_t> ids = ids_of(text, true, tokenizer);
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
  const auto rendered_ids = [&](const std::string& text) { return ids_of(text, false, tokenizer); };
  PromptIds all;
  for (const Prompt& prompt : prompts) {
    if (!prompt.chat) {
      all.ids.push_back(text_ids(prompt.text, tokenizer, options));
      continue;
    }
    all.ids.push_back(rendered_ids(chats.render_prompt(*prompt.chat, prompt.where)));
    if (all.ids.back().empty()) {
      throw Error(ErrorCode::kConfig,
                  fmt::format("render chat: {}: the chat template writes nothing for this chat "
                              "(give a message with text, or another template by --chat-template)",
                              prompt.where));
    }
    if (all.answer_end.empty()) all.answer_end = chats.answer_end(*prompt.chat, prompt.where);
  }
  all.answer_end_ids = rendered_ids(all.answer_end);
  return all;
}

}  // namespace strata::session
