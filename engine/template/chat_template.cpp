// SPDX-License-Identifier: Apache-2.0
#include "engine/template/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/template/renderer.h"
#include "engine/text/text_unicode.h"

namespace strata::templates {
namespace {

constexpr const char* kCheckTemplate = "correct the template, or choose another by its name";
constexpr const char* kCheckChat =
    "check that the chat has what the template uses, or choose another template";

Error refuse(const char* what, const std::string& where, const std::string& cause,
             const std::string& advice) {
  return Error(ErrorCode::kConfig, fmt::format("{} chat template: {}: {} ({})", what, where, cause,
                                               advice.empty() ? kCheckChat : advice));
}

// The first line of a node's text, shortened.
std::string shown(const Syntax& syntax, const Node& node) {
  constexpr size_t kShown = 80;
  std::string_view text = std::string_view(syntax.source).substr(node.begin, node.end - node.begin);
  const size_t line = text.find('\n');
  size_t end = std::min({text.size(), kShown, line});
  if (end < text.size()) end = text::utf8_start(text, end);
  return fmt::format("`{}{}`", text.substr(0, end), end < text.size() ? "..." : "");
}

// Transformers gives a message's reasoning under the names that templates know.
Value message_value(Renderer& renderer, const config::Json& message) {
  Heap& heap = renderer.heap();
  const Value value = heap.from_json(message);
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* reasoning = find(*value.dict, std::string_view(name));
    if (reasoning == nullptr || reasoning->is_none()) continue;
    renderer.charge(value.dict->size * value.dict->size / 8);  // dict() compares all names
    std::vector<Entry> entries = {{Value::of(std::string_view("thinking")), *reasoning}};
    entries.insert(entries.end(), value.dict->entries, value.dict->entries + value.dict->size);
    entries.push_back({Value::of(std::string_view("reasoning_content")), *reasoning});
    return heap.dict(entries);
  }
  return value;
}

void define_all(Renderer& renderer, const config::Json& variables) {
  for (const config::JsonMember& variable : variables.members()) {
    renderer.define(variable.name, renderer.heap().from_json(variable.value));
  }
}

void define_chat(Renderer& renderer, const Chat& chat) {
  const auto define_json = [&](const char* name, const config::Json* json) {
    renderer.define(name, json == nullptr ? Value::none() : renderer.heap().from_json(*json));
  };
  define_all(renderer, renderer.settings().variables);
  if (chat.variables != nullptr) define_all(renderer, *chat.variables);
  std::vector<Value> messages;
  const auto& given = chat.messages->items();
  const size_t count = std::min(given.size(), chat.message_count);
  for (size_t k = 0; k < count; ++k) {
    const bool is_replaced = chat.last != nullptr && k + 1 == count;
    messages.push_back(message_value(renderer, is_replaced ? *chat.last : given[k]));
  }
  renderer.define("messages", renderer.list(messages));
  define_json("tools", chat.tools);
  define_json("documents", chat.documents);
  renderer.define("add_generation_prompt", Value::of(chat.add_generation_prompt));
}

void check(const Chat& chat, const std::string& where) {
  const auto is_object = [](const config::Json& json) { return json.is_object(); };
  const bool are_messages =
      chat.messages != nullptr && chat.messages->is_array() &&
      std::all_of(chat.messages->items().begin(), chat.messages->items().end(), is_object);
  if (!are_messages) {
    throw refuse("render", where, "the chat is not a list of messages",
                 "give a list of objects such as {\"role\": \"user\", \"content\": \"...\"}");
  }
  if (chat.variables != nullptr && !chat.variables->is_object()) {
    throw refuse("render", where, "the variables are not an object",
                 "give an object such as {\"enable_thinking\": false}");
  }
}

}  // namespace

ChatTemplate::ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::parse(std::string_view text, std::string where,
                                 TemplateSettings settings) {
  if (text.size() > settings.limits.source_bytes) {
    throw refuse("parse", where,
                 fmt::format("it has {}, more than the limit of {}",
                             format_bytes(static_cast<int64_t>(text.size())),
                             format_bytes(static_cast<int64_t>(settings.limits.source_bytes))),
                 kCheckTemplate);
  }
  const size_t invalid = text::find_invalid_utf8(text);
  if (invalid != std::string_view::npos) {
    throw refuse("parse", where, fmt::format("byte {} is not UTF-8", invalid), kCheckTemplate);
  }
  ChatTemplate result;
  try {
    result.syntax_ = parse_syntax(text);
  } catch (const SyntaxError& error) {
    throw refuse("parse", fmt::format("{}:{}", where, error.line), error.cause, kCheckTemplate);
  }
  result.where_ = std::move(where);
  result.settings_ = std::move(settings);
  return result;
}

bool ChatTemplate::has_generation() const {
  return syntax_->has_generation;
}

RenderedChat ChatTemplate::render(const Chat& chat) const {
  check(chat, where_);
  Renderer renderer(*syntax_, settings_);
  const auto refuse_at = [&](const std::string& cause, const std::string& advice, bool of_memory) {
    const Node* node = renderer.current();
    const std::string place = node == nullptr ? where_ : fmt::format("{}:{}", where_, node->line);
    const std::string shown_cause =
        node == nullptr ? cause : fmt::format("{}: {}", shown(*syntax_, *node), cause);
    const char* memory_advice = "cut the chat into several, or raise --host-memory";
    const Error error = refuse("render", place, shown_cause, of_memory ? memory_advice : advice);
    return of_memory ? Error(ErrorCode::kDoesNotFit, error.what()) : error;
  };
  try {
    define_chat(renderer, chat);
    RenderedChat rendered = renderer.run();
    rendered.heap_bytes = renderer.heap().used_bytes();
    return rendered;
  } catch (const RenderFault& fault) {
    throw refuse_at(fault.cause, fault.advice, fault.is_of_memory);
  } catch (const Heap::Refusal& refusal) {
    throw refuse_at(refusal.cause, "", refusal.is_of_memory);
  } catch (const NoText& none) {
    throw refuse_at(none.cause, "", false);
  }
}

}  // namespace strata::templates
