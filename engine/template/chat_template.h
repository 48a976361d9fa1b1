// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/json.h"
#include "engine/text/byte_range.h"

namespace strata::templates {

struct Syntax;

// A local time, for templates that write the date into the prompt. It is fixed for a run, so that a
// run can be repeated.
struct TemplateDate {
  int year = 2024;
  int month = 7;  // from 1
  int day = 26;
  int hour = 0;
  int minute = 0;
  int second = 0;
};

// Limits beyond which a template is refused.
struct TemplateLimits {
  size_t source_bytes = 1 << 20;
  size_t steps = 50'000'000;  // nodes of the template's tree that are evaluated
  size_t memory_bytes = size_t{512} << 20;
  size_t output_bytes = size_t{128} << 20;
};

struct TemplateSettings {
  // Variables of every rendering: an object such as {"bos_token": "<s>", "eos_token": "</s>"}.
  config::Json variables = config::Json::object();
  TemplateDate date = {};
  TemplateLimits limits = {};
};

// What is rendered.
struct Chat {
  const config::Json* messages = nullptr;   // a list of objects
  size_t message_count = SIZE_MAX;          // only so many of them, from the first on
  const config::Json* last = nullptr;       // an object instead of the last of these
  const config::Json* tools = nullptr;      // null: the template sees none
  const config::Json* documents = nullptr;  // likewise
  const config::Json* variables = nullptr;  // an object of more variables, such as enable_thinking
  bool add_generation_prompt = false;
};

using text::ByteRange;

struct RenderedChat {
  std::string text;
  std::vector<ByteRange> generated;  // the bytes within {% generation %} blocks, in order
  // A block within a macro or a captured text: its place in the text is not known.
  bool has_lost_blocks = false;
  size_t heap_bytes = 0;  // that the rendering took
};

// A chat template of a Hugging Face model.
//
// Guarantees: renders the text that Transformers' apply_chat_template() (5.23, jinja2 3.1.6)
// renders, or fails; reads nothing but the template and what it is given. Threads: any number may
// render. Memory: the tree, about 200 bytes a node; a rendering frees its own at its end. Failure:
// Error that names the template, the line and the expression: kDoesNotFit where it takes more
// memory or output than the limits, else kConfig.
class ChatTemplate {
 public:
  // `where` names the template in errors: a path.
  static ChatTemplate parse(std::string_view text, std::string where, TemplateSettings settings);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Whether {% generation %} blocks say what the assistant wrote.
  bool has_generation() const;
  RenderedChat render(const Chat& chat) const;

 private:
  ChatTemplate();

  std::string where_;
  TemplateSettings settings_;
  std::unique_ptr<const Syntax> syntax_;
};

}  // namespace strata::templates
