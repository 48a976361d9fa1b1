// SPDX-License-Identifier: Apache-2.0
#include "engine/template/masked_chat.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace strata::templates {
namespace {

std::optional<std::string> render_first(const ChatTemplate& chat_template, Chat chat, size_t count,
                                        bool with_prompt) {
  chat.message_count = count;
  chat.add_generation_prompt = with_prompt;
  try {
    return chat_template.render(chat).text;
  } catch (const Error&) {  // a template may refuse chats that end with some role
    return std::nullopt;
  }
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
  auto text = prompt ? render_first(chat_template, chat, index + 1, false) : std::nullopt;
  if (!text || !text->starts_with(*prompt)) return std::nullopt;
  const ByteRange added = {prompt->size(), text->size()};
  MaskedChat turn = {std::move(*text), {}};
  if (added.begin < added.end) turn.targets.push_back(added);
  return turn;
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
  for (const size_t index : assistant_turns(chat)) {
    const auto turn = render_turn(chat_template, chat, index);
    if (!turn || turn->targets.empty() || !masked.text.starts_with(turn->text)) return std::nullopt;
    masked.targets.push_back(turn->targets.front());
  }
  return masked;
}

}  // namespace strata::templates
