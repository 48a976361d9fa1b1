// SPDX-License-Identifier: Apache-2.0
#include "engine/template/masked_chat.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace strata::templates {
namespace {

std::optional<RenderedChat> render_first(const ChatTemplate& chat_template, Chat chat, size_t count,
                                         bool with_prompt) {
  chat.message_count = count;
  chat.add_generation_prompt = with_prompt;
  try {
    return chat_template.render(chat);
  } catch (const Error&) {  // a template may refuse chats that end with some role
    return std::nullopt;
  }
}

// What of the ranges lies in another one.
std::vector<ByteRange> within(const std::vector<ByteRange>& ranges, const ByteRange& limits) {
  std::vector<ByteRange> parts;
  for (const ByteRange& range : ranges) {
    const ByteRange part = {std::max(range.begin, limits.begin), std::min(range.end, limits.end)};
    if (part.begin < part.end) parts.push_back(part);
  }
  return parts;
}

// Of whole characters.
std::string_view common_beginning(std::string_view a, std::string_view b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  auto size = static_cast<size_t>(end - a.begin());
  while (size > 0 && size < a.size() && (a[size] & 0xC0) == 0x80) --size;
  return a.substr(0, size);
}

// The messages up to `index`, the last of which says and thinks nothing but `words`.
config::Json with_other_words(const Chat& chat, size_t index, const char* words) {
  config::Json messages = config::Json::array();
  for (size_t k = 0; k <= index; ++k) messages.push_back(chat.messages->items()[k]);
  config::Json& last = messages.items().back();
  for (const char* name : {"reasoning_content", "reasoning", "thinking"}) {
    const config::Json* thought = last.find(name);
    if (thought != nullptr && thought->is_string() && !thought->string().empty())
      last.set(name, words);
  }
  last.set("content", words);
  return messages;
}

// Where the words of message `index` begin in `turn`: behind the beginning that it would have with
// any other words, and that the generation prompt has too. Only the first message may have no
// prompt. Nothing when this beginning has nothing but the messages before, or not even these.
std::optional<size_t> begin_of_words(const ChatTemplate& chat_template, const Chat& chat,
                                     size_t index, const RenderedChat& turn,
                                     const std::optional<RenderedChat>& prompt) {
  if (!prompt && index > 0) return std::nullopt;
  std::string_view begin = turn.text;
  if (prompt) begin = common_beginning(begin, prompt->text);
  for (const char* words : {"A", "z"}) {
    const config::Json messages = with_other_words(chat, index, words);
    Chat other = chat;
    other.messages = &messages;
    const auto text = render_first(chat_template, other, index + 1, false);
    if (!text) return std::nullopt;
    begin = common_beginning(begin, text->text);
  }
  if (index == 0) return begin.size();
  const auto before = render_first(chat_template, chat, index, false);
  const bool has_header =
      before && begin.starts_with(before->text) && begin.size() > before->text.size();
  return has_header ? std::optional(begin.size()) : std::nullopt;
}

struct Added {
  std::vector<ByteRange> targets;
  bool leaves_prompt;
};

// What message `index` adds to the messages before it in `turn`, the rendering up to that message,
// and what of this is learned. Nothing when the message changes those before it.
std::optional<Added> targets_of(const ChatTemplate& chat_template, const Chat& chat, size_t index,
                                const RenderedChat& turn) {
  const auto prompt = render_first(chat_template, chat, index, true);
  const bool has_prompt = prompt && turn.text.starts_with(prompt->text);
  const auto begin =
      has_prompt ? prompt->text.size() : begin_of_words(chat_template, chat, index, turn, prompt);
  if (!begin) return std::nullopt;
  const ByteRange added = {*begin, turn.text.size()};
  const bool has_blocks = chat_template.has_generation() && !turn.has_lost_blocks;
  return Added{within(has_blocks ? turn.generated : std::vector{added}, added),
               prompt && !has_prompt};
}

}  // namespace

void RenderedBytes::add(size_t bytes) {
  constexpr size_t kMost = size_t{256} << 20;
  bytes_ += bytes;
  if (bytes_ <= kMost) return;
  throw Error(ErrorCode::kConfig,
              "the chat has too many turns to tell what each of them adds (cut it into several, or "
              "mark what the assistant writes by {% generation %} in a template of your own, and "
              "give it by --chat-template)");
}

std::vector<size_t> assistant_turns(const Chat& chat) {
  std::vector<size_t> turns;
  const auto& messages = chat.messages->items();
  for (size_t k = 0; k < std::min(messages.size(), chat.message_count); ++k) {
    const config::Json* role = messages[k].find("role");
    if (role != nullptr && role->is_string() && role->string() == "assistant") turns.push_back(k);
  }
  return turns;
}

std::optional<MaskedChat> render_turn(const ChatTemplate& chat_template, const Chat& chat,
                                      size_t index) {
  auto turn = render_first(chat_template, chat, index + 1, false);
  auto added = turn ? targets_of(chat_template, chat, index, *turn) : std::nullopt;
  if (!added) return std::nullopt;
  return MaskedChat{std::move(turn->text), std::move(added->targets), added->leaves_prompt};
}

std::optional<MaskedChat> render_masked(const ChatTemplate& chat_template, const Chat& given) {
  Chat chat = given;
  chat.add_generation_prompt = false;
  RenderedChat whole = chat_template.render(chat);
  MaskedChat masked;
  if (chat_template.has_generation() && !whole.has_lost_blocks) {
    std::copy_if(whole.generated.begin(), whole.generated.end(), std::back_inserter(masked.targets),
                 [](const ByteRange& range) { return range.begin < range.end; });
    masked.text = std::move(whole.text);
    return masked;
  }
  const size_t count = std::min(chat.messages->items().size(), chat.message_count);
  RenderedBytes rendered;
  for (const size_t index : assistant_turns(chat)) {
    const bool is_last = index + 1 == count;
    const auto part = is_last ? std::nullopt : render_first(chat_template, chat, index + 1, false);
    if (!is_last && (!part || !whole.text.starts_with(part->text))) return std::nullopt;
    const RenderedChat& turn = is_last ? whole : *part;
    const auto added = targets_of(chat_template, chat, index, turn);
    if (!added || added->targets.empty()) return std::nullopt;
    masked.targets.push_back(added->targets.front());
    masked.leaves_prompt = masked.leaves_prompt || added->leaves_prompt;
    rendered.add(2 * turn.text.size());
  }
  masked.text = std::move(whole.text);
  return masked;
}

}  // namespace strata::templates
