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
  } catch (const Error& error) {  // a template may refuse chats that end with some role
    if (error.code() != ErrorCode::kConfig) throw;
    return std::nullopt;
  }
}

// Those that are not empty.
std::vector<ByteRange> filled(std::vector<ByteRange> ranges) {
  std::erase_if(ranges, [](const ByteRange& range) { return range.begin == range.end; });
  return ranges;
}

// Of whole characters.
std::string_view common_beginning(std::string_view a, std::string_view b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  auto size = static_cast<size_t>(end - a.begin());
  while (size > 0 && size < a.size() && (a[size] & 0xC0) == 0x80) --size;
  return a.substr(0, size);
}

// Lets a message say, think and call nothing but `words`.
void set_words(config::Json& message, const char* words) {
  std::erase_if(message.members(),
                [](const config::JsonMember& member) { return member.name == "tool_calls"; });
  for (const char* name : kReasoningMembers) {
    const config::Json* thought = message.find(name);
    if (thought != nullptr && thought->is_string() && !thought->string().empty())
      message.set(name, words);
  }
  message.set("content", words);
}

// The beginning of `turn`, the rendering up to message `index`, that it would have with any other
// words of that message; nothing when the template refuses those.
std::optional<std::string_view> beginning_of_any(const ChatTemplate& chat_template,
                                                 const Chat& chat, size_t index,
                                                 std::string_view turn, RenderedBytes& rendered) {
  config::Json message = chat.messages->items()[index];
  Chat other = chat;
  other.last = &message;
  for (const char* words : {"A", "z"}) {
    set_words(message, words);
    const auto text = render_first(chat_template, other, index + 1, false);
    if (!text) return std::nullopt;
    rendered.add(*text);
    turn = common_beginning(turn, text->text);
  }
  return turn;
}

// Where what is added to the messages before begins.
struct Begin {
  size_t at;
  bool leaves_prompt;  // not behind the generation prompt
};

// What the generation prompt adds to a chat that asks something; empty where it changes the chat.
std::string header_of_answers(const ChatTemplate& chat_template, const Chat& chat) {
  config::Json question = config::Json::object();
  question.set("role", "user");
  question.set("content", "A");
  const config::Json messages(config::Json::Array{std::move(question)});
  Chat other = chat;
  other.messages = &messages;
  const auto asked = render_first(chat_template, other, 1, true);
  const auto alone = render_first(chat_template, other, 1, false);
  const bool adds = asked && alone && asked->text.starts_with(alone->text);
  return adds ? asked->text.substr(alone->text.size()) : "";
}

// The first message of a chat, before which no generation prompt may stand: behind the header of
// answers elsewhere, or where it has another, behind what every first message begins with.
std::optional<Begin> begin_of_first(const ChatTemplate& chat_template, const Chat& chat,
                                    std::string_view turn, RenderedBytes& rendered) {
  const auto any = beginning_of_any(chat_template, chat, 0, turn, rendered);
  if (!any) return std::nullopt;
  const std::string header = header_of_answers(chat_template, chat);
  const size_t at = header.empty() ? any->npos : any->rfind(header);
  return Begin{at == any->npos ? any->size() : at + header.size(), false};
}

// A later message: behind the generation prompt, or where it does not begin with that, behind the
// beginning that it would have with any other words and that the prompt has too. Nothing when this
// beginning has nothing but the messages before, or not even these.
std::optional<Begin> begin_of_later(const ChatTemplate& chat_template, const Chat& chat,
                                    size_t index, std::string_view turn, RenderedBytes& rendered) {
  const auto prompt = render_first(chat_template, chat, index, true);
  if (!prompt) return std::nullopt;
  rendered.add(*prompt);
  if (turn.starts_with(prompt->text)) return Begin{prompt->text.size(), false};
  const auto any = beginning_of_any(chat_template, chat, index, turn, rendered);
  const auto before = render_first(chat_template, chat, index, false);
  if (!any || !before) return std::nullopt;
  rendered.add(*before);
  const std::string_view begin = common_beginning(*any, prompt->text);
  const bool has_header = begin.starts_with(before->text) && begin.size() > before->text.size();
  return has_header ? std::optional(Begin{begin.size(), true}) : std::nullopt;
}

struct Added {
  std::vector<ByteRange> targets;
  bool leaves_prompt;
};

// What message `index` adds to the messages before it in `turn`, the rendering up to that message,
// and what of this is learned. Nothing when the message changes those before it.
std::optional<Added> targets_of(const ChatTemplate& chat_template, const Chat& chat, size_t index,
                                const RenderedChat& turn, RenderedBytes& rendered) {
  rendered.add(turn);
  const auto begin = index == 0 ? begin_of_first(chat_template, chat, turn.text, rendered)
                                : begin_of_later(chat_template, chat, index, turn.text, rendered);
  if (!begin) return std::nullopt;
  Added added = {{}, begin->leaves_prompt};
  if (begin->at < turn.text.size()) added.targets.push_back({begin->at, turn.text.size()});
  return added;
}

// The same by {% generation %} blocks: those that the messages before it do not have.
std::optional<Added> blocks_of(const ChatTemplate& chat_template, const Chat& chat, size_t index,
                               const RenderedChat& turn, RenderedBytes& rendered) {
  rendered.add(turn);
  if (index == 0) return Added{filled(turn.generated), false};
  const auto prompt = render_first(chat_template, chat, index, true);
  if (!prompt) return std::nullopt;
  rendered.add(*prompt);
  const std::vector<ByteRange>& before = prompt->generated;
  if (before.size() > turn.generated.size() ||
      !std::equal(before.begin(), before.end(), turn.generated.begin())) {
    return std::nullopt;
  }
  const auto own = turn.generated.begin() + static_cast<std::ptrdiff_t>(before.size());
  return Added{filled({own, turn.generated.end()}), !turn.text.starts_with(prompt->text)};
}

}  // namespace

// A value takes less time than the text of its size.
void RenderedBytes::add(const RenderedChat& chat) {
  constexpr size_t kFirstBlock = 64 << 10;  // of the heap, which most chats do not fill
  const size_t value_bytes = std::max(chat.heap_bytes, kFirstBlock) - kFirstBlock;
  add(chat.text.size() + value_bytes / 4);
}

void RenderedBytes::add(size_t text_bytes) {
  constexpr size_t kMost = size_t{256} << 20;
  bytes_ += text_bytes;
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
                                      size_t index, RenderedBytes& rendered) {
  auto turn = render_first(chat_template, chat, index + 1, false);
  if (!turn) return std::nullopt;
  const bool has_blocks = chat_template.has_generation() && !turn->has_lost_blocks;
  auto added = has_blocks ? blocks_of(chat_template, chat, index, *turn, rendered)
                          : targets_of(chat_template, chat, index, *turn, rendered);
  if (!added) return std::nullopt;
  return MaskedChat{std::move(turn->text), std::move(added->targets), added->leaves_prompt};
}

std::optional<MaskedChat> render_masked(const ChatTemplate& chat_template, const Chat& given) {
  Chat chat = given;
  chat.add_generation_prompt = false;
  RenderedChat whole = chat_template.render(chat);
  if (chat_template.has_generation() && !whole.has_lost_blocks) {
    return MaskedChat{std::move(whole.text), filled(std::move(whole.generated))};
  }
  const size_t count = std::min(chat.messages->items().size(), chat.message_count);
  MaskedChat masked;
  RenderedBytes rendered;
  for (const size_t index : assistant_turns(chat)) {
    const bool is_last = index + 1 == count;
    const auto part = is_last ? std::nullopt : render_first(chat_template, chat, index + 1, false);
    if (!is_last && (!part || !whole.text.starts_with(part->text))) return std::nullopt;
    const RenderedChat& turn = is_last ? whole : *part;
    const auto added = targets_of(chat_template, chat, index, turn, rendered);
    if (!added || added->targets.empty()) return std::nullopt;
    masked.targets.push_back(added->targets.front());
    masked.leaves_prompt = masked.leaves_prompt || added->leaves_prompt;
  }
  masked.text = std::move(whole.text);
  return masked;
}

}  // namespace strata::templates
