// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/template/chat_template.h"

namespace strata::templates {

// Members of messages that hold what the assistant thought before it answered.
inline constexpr std::array<const char*, 3> kReasoningMembers = {"reasoning_content", "reasoning",
                                                                 "thinking"};

// A rendered chat and what a model learns of it: the bytes that the assistant wrote, in order,
// each range with at least one byte. Ranges begin and end between characters.
struct MaskedChat {
  std::string text;
  std::vector<ByteRange> targets;
  // Some answer does not begin with the generation prompt: the template opens reasoning that the
  // answer lacks, say. Whoever generates with that prompt asks for what was not learned.
  bool leaves_prompt = false;
};

// What was rendered of one chat: texts and, by a quarter, values beyond a few. A chat of very many
// turns, each of which is rendered with all before it, would take hours. Failure: Error (kConfig)
// beyond 256 MiB.
class RenderedBytes {
 public:
  void add(const RenderedChat& chat);
  void add(size_t text_bytes);

 private:
  size_t bytes_ = 0;
};

// Renders a chat, without a prompt for one more answer. Its targets are the {% generation %} blocks
// of the template. Without such blocks, or where one is in a macro or a captured text, they are for
// each message of the assistant what it adds to the rendering of the messages before it with their
// generation prompt; where it does not begin with that prompt, what follows the beginning that all
// answers there and the prompt have.
//
// Nothing when a rendering of the first messages is not the beginning of the rendering of all: the
// template strips earlier reasoning, moves the tools or refuses chats that end so. Then only the
// turns can be rendered, each with render_turn(). Failure: Error of ChatTemplate::render() for the
// whole chat.
std::optional<MaskedChat> render_masked(const ChatTemplate& chat_template, const Chat& chat);

// Renders the messages up to the one at `index`, of which only what it adds is learned, or what is
// in {% generation %} blocks of that: what a model that answers at this place has seen. No target
// when the template adds nothing for the message.
// Nothing when the message changes the messages before it or has no beginning that the generation
// prompt has too, or when the template refuses these messages.
std::optional<MaskedChat> render_turn(const ChatTemplate& chat_template, const Chat& chat,
                                      size_t index, RenderedBytes& rendered);

// The places of the assistant's messages.
std::vector<size_t> assistant_turns(const Chat& chat);

}  // namespace strata::templates
