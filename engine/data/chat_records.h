// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/json.h"
#include "engine/data/data_records.h"
#include "engine/template/chat_template.h"
#include "engine/template/masked_chat.h"

namespace strata::text {
struct NamedTemplate;
struct TokenizerConfig;
}  // namespace strata::text

namespace strata::data {

// The template that a model needs which was trained with --chat-template `chosen`, where its own
// default is another: what a .jinja file has, one of its own with this name, or ChatML; else empty.
// Failure: Error that names the file.
std::string template_to_export(const std::string& chosen, const std::string& model_directory);

// Renders the chats of records, and of those who ask a model, with a template of the model.
//
// The template is that of the name `chosen`, the file `chosen` if it ends in .jinja, or plain
// ChatML for "chatml". With an empty `chosen` it is "tool_use" for chats with tools, if the model
// has it, and else "default". The date that templates see is `date`, or where it is empty 26 July
// 2024, so that data is the same on every day. Failure: Error that names the template or the
// record.
class ChatRecords {
 public:
  // `date`: as parse_date() reads it. `memory_bytes`: the most that a rendering may take; 0: as
  // TemplateLimits has it.
  ChatRecords(const text::TokenizerConfig& config, std::string chosen, const std::string& date,
              int64_t memory_bytes = 0);

  // Hands on the texts that a record becomes, one at a time: one, or one for each answer of the
  // assistant where the template changes earlier messages as a chat goes on (it strips their
  // reasoning, say). `where` names the record.
  using UseText = std::function<void(const templates::MaskedChat& text)>;
  void render(const ChatRecord& record, const std::string& where, const UseText& use);
  // The text up to where the assistant answers the last message.
  std::string render_prompt(const ChatRecord& asked, const std::string& where);
  // The marker that the template writes behind such an answer, such as "<|im_end|>"; empty where it
  // writes none or refuses the chat.
  std::string answer_end(const ChatRecord& asked, const std::string& where);

 private:
  struct Parsed {
    std::string name;
    templates::ChatTemplate chat_template;
  };

  const templates::ChatTemplate& template_for(bool has_tools, const std::string& where,
                                              const char* instead);
  std::optional<text::NamedTemplate> find(bool has_tools) const;

  const text::TokenizerConfig& config_;
  const std::string chosen_;
  const templates::TemplateDate date_;
  const templates::TemplateLimits limits_;
  std::vector<Parsed> parsed_;
};

}  // namespace strata::data
