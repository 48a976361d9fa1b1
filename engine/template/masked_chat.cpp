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

// What message `index` adds to the messages before it in `turn`, the rendering up to that message,
// and what of this is learned. Nothing when the generation prompt is not how the message begins.
std::optional<std::vector<ByteRange>> targets_of(const ChatTemplate& chat_template,
                                                 const Chat& chat, size_t index,
                                                 const RenderedChat& turn) {
  const auto prompt = render_first(chat_template, chat, index, true);
  if (!prompt || !turn.text.starts_with(prompt->text)) return std::nullopt;
  const ByteRange added = {prompt->text.size(), turn.text.size()};
  const bool has_blocks = chat_template.has_generation() && !turn.has_lost_blocks;
  return within(has_blocks ? turn.generated : std::vector{added}, added);
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
  auto targets = turn ? targets_of(chat_template, chat, index, *turn) : std::nullopt;
  if (!targets) return std::nullopt;
  return MaskedChat{std::move(turn->text), std::move(*targets)};
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
    const auto targets = targets_of(chat_template, chat, index, turn);
    if (!targets || targets->empty()) return std::nullopt;
    masked.targets.push_back(targets->front());
    rendered.add(2 * turn.text.size());
  }
  masked.text = std::move(whole.text);
  return masked;
}

}  // namespace strata::templates
