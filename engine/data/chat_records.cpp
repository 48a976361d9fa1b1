// SPDX-License-Identifier: Apache-2.0
#include "engine/data/chat_records.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <utility>

#include "engine/base/date.h"
#include "engine/base/error.h"
#include "engine/data/record_messages.h"
#include "engine/text/text_files.h"
#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_read.h"

namespace strata::data {
namespace {

using config::Json;
using templates::ByteRange;
using templates::MaskedChat;

constexpr int64_t kTemplateBytesMax = 1 << 20;
constexpr const char* kForRecords = "give records of \"prompt\" and \"completion\"";
constexpr const char* kForPrompts = "give texts to continue, not chats";
constexpr const char* kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// The same text, without tags that other programs may not know.
std::string plain_chat_ml() {
  std::string source = kChatMl;
  for (const std::string_view tag : {"{% generation %}", "{% endgeneration %}"}) {
    source.erase(source.find(tag), tag.size());
  }
  return source;
}

Error bad_chat(const std::string& where, const std::string& cause,
               ErrorCode code = ErrorCode::kConfig) {
  return Error(code, fmt::format("render chat: {}: {}", where, cause));
}

std::string read_template(const std::string& path) {
  if (std::filesystem::exists(path)) return text::read_text_file(path, kTemplateBytesMax);
  throw Error(ErrorCode::kConfig,
              fmt::format("chat template: {}: there is no such file (give its path by "
                          "--chat-template; a run that has ended has a copy in RUN/model)",
                          path));
}

// The template that --chat-template names, where a model has its `own`.
std::optional<text::NamedTemplate> chosen_template(const std::string& name,
                                                   const std::vector<text::NamedTemplate>& own) {
  if (name.ends_with(".jinja")) return text::NamedTemplate{name, read_template(name), name};
  const auto found = std::ranges::find(own, name, &text::NamedTemplate::name);
  if (found != own.end()) return *found;
  if (name != "chatml") return std::nullopt;
  return text::NamedTemplate{"chatml", kChatMl, "chatml"};
}

// How many targets a chat with generation blocks has up to the message of a turn; nothing when the
// renderings do not agree about that.
std::optional<size_t> targets_until(const templates::ChatTemplate& chat_template,
                                    templates::Chat chat, size_t turn, const MaskedChat& whole,
                                    templates::RenderedBytes& rendered) {
  chat.message_count = turn + 1;
  const auto part = templates::render_masked(chat_template, chat);
  if (!part || part->targets.size() > whole.targets.size() ||
      !std::equal(part->targets.begin(), part->targets.end(), whole.targets.begin())) {
    return std::nullopt;
  }
  rendered.add(part->text.size());
  return part->targets.size();
}

// Removes the targets of skipped turns from a whole chat. Returns false when it is not known which
// these are. Without generation blocks each turn has one; with them, the chat is rendered up to a
// turn only where a skipped turn follows one that is not, or is followed by one.
bool remove_skipped(const templates::ChatTemplate& chat_template, const templates::Chat& chat,
                    const ChatRecord& record, MaskedChat& whole) {
  const std::vector<size_t> turns = templates::assistant_turns(chat);
  std::vector<ByteRange> kept;
  size_t done = 0;
  templates::RenderedBytes rendered;
  for (size_t k = 0; k < turns.size(); ++k) {
    const bool skipped = record.skips(turns[k]);
    const bool is_last = k + 1 == turns.size();
    if (!is_last && record.skips(turns[k + 1]) == skipped) continue;
    std::optional<size_t> end = is_last ? whole.targets.size() : k + 1;
    if (!is_last && chat_template.has_generation()) {
      end = targets_until(chat_template, chat, turns[k], whole, rendered);
    }
    if (!end || *end < done) return false;
    const auto at = [&](size_t n) {
      return whole.targets.begin() + static_cast<std::ptrdiff_t>(n);
    };
    if (!skipped) kept.insert(kept.end(), at(done), at(*end));
    done = *end;
  }
  whole.targets = std::move(kept);
  return true;
}

templates::Chat chat_of(const ChatRecord& record) {
  const auto given = [](const Json& json) { return json.is_null() ? nullptr : &json; };
  return {.messages = &record.messages,
          .tools = given(record.tools),
          .documents = given(record.documents),
          .variables = given(record.variables)};
}

templates::TemplateDate date_of(const std::string& text) {
  const auto date = parse_date(text);
  if (!date) return {};
  return {.year = static_cast<int>(date->year()),
          .month = static_cast<int>(static_cast<unsigned>(date->month())),
          .day = static_cast<int>(static_cast<unsigned>(date->day()))};
}

templates::TemplateLimits limits_of(int64_t memory_bytes) {
  templates::TemplateLimits limits;
  if (memory_bytes == 0) return limits;
  limits.memory_bytes = std::min(limits.memory_bytes, static_cast<size_t>(memory_bytes));
  limits.output_bytes = std::min(limits.output_bytes, static_cast<size_t>(memory_bytes));
  return limits;
}

}  // namespace

std::string template_to_export(const std::string& chosen, const std::string& model_directory) {
  if (chosen.empty() || chosen == "default") return "";
  const auto found = chosen_template(chosen, text::chat_templates_in(model_directory));
  if (!found) return "";
  return found->source == kChatMl ? plain_chat_ml() : found->source;
}

ChatRecords::ChatRecords(const text::TokenizerConfig& config, std::string chosen,
                         const std::string& date, int64_t memory_bytes)
    : config_(config),
      chosen_(std::move(chosen)),
      date_(date_of(date)),
      limits_(limits_of(memory_bytes)) {}

std::optional<text::NamedTemplate> ChatRecords::find(bool has_tools) const {
  const std::vector<text::NamedTemplate>& own = config_.chat_templates;
  if (!chosen_.empty()) return chosen_template(chosen_, own);
  const auto for_tools = has_tools ? chosen_template("tool_use", own) : std::nullopt;
  return for_tools ? for_tools : chosen_template("default", own);
}

// `instead`: what does without a template.
const templates::ChatTemplate& ChatRecords::template_for(bool has_tools, const std::string& where,
                                                         const char* instead) {
  const std::string key = has_tools ? "tools" : "";
  for (const Parsed& one : parsed_) {
    if (one.name == key) return one.chat_template;
  }
  const auto found = find(has_tools);
  if (!found) {
    std::vector<std::string> names;
    for (const text::NamedTemplate& one : config_.chat_templates) names.push_back(one.name);
    const std::string known =
        names.empty() && !chosen_.empty()
            ? fmt::format("the model has no chat template {}, nor any other", chosen_)
        : names.empty()
            ? "the model has no chat template"
            : fmt::format("the model has no chat template {}, only {}",
                          chosen_.empty() ? "default" : chosen_, fmt::join(names, ", "));
    throw NotOfTheRecord(
        bad_chat(where, fmt::format("{} (choose one with --chat-template: chatml, or the path of "
                                    "a .jinja file; or {})",
                                    known, instead)));
  }
  templates::TemplateSettings settings = {.date = date_, .limits = limits_};
  for (const auto& [name, token] : config_.special_tokens)
    settings.variables.set(name, Json(token));
  try {
    parsed_.push_back(
        {key, templates::ChatTemplate::parse(found->source, found->path, std::move(settings))});
  } catch (const Error& error) {
    throw NotOfTheRecord(error);
  }
  return parsed_.back().chat_template;
}

void ChatRecords::render(const ChatRecord& record, const std::string& where, const UseText& use) {
  const templates::Chat chat = chat_of(record);
  const templates::ChatTemplate& chat_template =
      template_for(chat.tools != nullptr, where, kForRecords);
  const std::vector<size_t> turns = templates::assistant_turns(chat);
  const auto is_prompt = [&](size_t turn) { return turn < record.prompt_count; };
  const bool has_prompt = std::any_of(turns.begin(), turns.end(), is_prompt);
  bool is_rendering = true;
  const auto hand_on = [&](const MaskedChat& text) {
    is_rendering = false;
    use(text);
    is_rendering = true;
  };
  try {
    if (record.learns_all) {
      MaskedChat all = {chat_template.render(chat).text, {}};
      all.targets.push_back({0, all.text.size()});
      return hand_on(all);
    }
    // Answers within a prompt are no targets, which only the turns tell apart.
    if (!has_prompt) {
      auto whole = templates::render_masked(chat_template, chat);
      if (whole &&
          (record.skipped.empty() || remove_skipped(chat_template, chat, record, *whole))) {
        return hand_on(*whole);
      }
    }
    templates::RenderedBytes rendered;
    for (const size_t turn : turns) {
      if (is_prompt(turn) || record.skips(turn)) continue;
      auto one = templates::render_turn(chat_template, chat, turn, rendered);
      if (!one) {
        throw Error(
            ErrorCode::kConfig,
            fmt::format("message {} and the template's generation prompt do not begin alike, so "
                        "its text cannot be told from the prompt (mark what the assistant writes "
                        "by {{% generation %}} in a template of your own, and give it by "
                        "--chat-template)",
                        turn + 1));
      }
      if (one->targets.empty()) {
        throw Error(ErrorCode::kConfig, fmt::format("message {} adds nothing to the chat (give it "
                                                    "text, or remove it)",
                                                    turn + 1));
      }
      hand_on(*one);
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kConfig) throw bad_chat(where, error.what());
    if (is_rendering) throw bad_chat(where, error.what(), error.code());
    throw;  // what `use` met, such as a full disk
  }
}

std::string ChatRecords::render_prompt(const ChatRecord& asked, const std::string& where) {
  templates::Chat chat = chat_of(asked);
  chat.add_generation_prompt = true;
  const auto& chat_template = template_for(chat.tools != nullptr, where, kForPrompts);
  try {
    return chat_template.render(chat).text;
  } catch (const Error& error) {
    throw bad_chat(where, error.what());
  }
}

std::string ChatRecords::answer_end(const ChatRecord& asked, const std::string& where) {
  constexpr std::string_view kAnswer = "answer";
  ChatRecord answered = asked;
  answered.messages.push_back(message_of("assistant", std::string(kAnswer)));
  const templates::Chat chat = chat_of(answered);
  const auto& chat_template = template_for(chat.tools != nullptr, where, kForPrompts);
  try {
    const std::string text = chat_template.render(chat).text;
    const size_t at = text.rfind(kAnswer);
    if (at == std::string::npos) return "";
    const size_t begin = text.find_first_not_of(" \t\r\n", at + kAnswer.size());
    const size_t end = text.find('>', at);
    const bool is_marker = begin < end && end != std::string::npos && text[begin] == '<';
    return is_marker ? text.substr(begin, end + 1 - begin) : "";
  } catch (const Error&) {
    return "";
  }
}

}  // namespace strata::data
