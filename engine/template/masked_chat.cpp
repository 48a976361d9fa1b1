// SPDX-License-Identifier: Apache-2.0
#include "engine/template/masked_chat.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace strata::templates {
namespace {

// Each turn is rendered with all before it, so that a chat of very many would take hours.
constexpr size_t kRenderedBytesMax = size_t{256} << 20;

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

}  // namespace

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
  const auto prompt = render_first(chat_template, chat, index, true);
  auto turn = prompt ? render_first(chat_template, chat, index + 1, false) : std::nullopt;
  if (!turn || !turn->text.starts_with(prompt->text)) return std::nullopt;
  const ByteRange added = {prompt->text.size(), turn->text.size()};
  const bool has_blocks = chat_template.has_generation() && !turn->has_lost_blocks;
  std::vector<ByteRange> targets = within(has_blocks ? turn->generated : std::vector{added}, added);
  return MaskedChat{std::move(turn->text), std::move(targets)};
}

std::optional<MaskedChat> render_masked(const ChatTemplate& chat_template, const Chat& given) {
  Chat chat = given;
  chat.add_generation_prompt = false;
  RenderedChat whole = chat_template.render(chat);
  MaskedChat masked = {std::move(whole.text), {}};
  if (chat_template.has_generation() && !whole.has_lost_blocks) {
    std::copy_if(whole.generated.begin(), whole.generated.end(), std::back_inserter(masked.targets),
                 [](const ByteRange& range) { return range.begin < range.end; });
    return masked;
  }
  size_t rendered_bytes = 0;
  for (const size_t index : assistant_turns(chat)) {
    if (rendered_bytes > kRenderedBytesMax) {
      throw Error(
          ErrorCode::kConfig,
          "the chat has too many turns to tell what each of them adds (cut it into several, "
          "or mark what the assistant writes by {% generation %} in a template of your own, "
          "and give it by --chat-template)");
    }
    const auto turn = render_turn(chat_template, chat, index);
    if (!turn || turn->targets.empty() || !masked.text.starts_with(turn->text)) return std::nullopt;
    masked.targets.push_back(turn->targets.front());
    rendered_bytes += 2 * turn->text.size();
  }
  return masked;
}

}  // namespace strata::templates
