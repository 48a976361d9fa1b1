// SPDX-License-Identifier: Apache-2.0
// The targets of a chat are exactly what the assistant wrote, by generation blocks or by prefixes;
// where prefixes do not tell, the turns do.
#include "engine/template/masked_chat.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/json.h"

namespace strata::templates {
namespace {

using config::Json;
using Texts = std::vector<std::string>;

ChatTemplate template_of(const std::string& name) {
  std::ifstream file(std::string(STRATA_TEST_DATA) + "/template/" + name, std::ios::binary);
  const std::string source{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_FALSE(source.empty());
  TemplateSettings settings;
  settings.variables.set("bos_token", Json("<s>"));
  settings.variables.set("eos_token", Json("</s>"));
  return ChatTemplate::parse(source, name, std::move(settings));
}

Texts targets_of(const MaskedChat& chat) {
  Texts texts;
  for (const ByteRange& range : chat.targets) {
    texts.push_back(chat.text.substr(range.begin, range.end - range.begin));
  }
  return texts;
}

std::optional<MaskedChat> turn_of(const ChatTemplate& chat_template, const Chat& chat,
                                  size_t index) {
  RenderedBytes rendered;
  return render_turn(chat_template, chat, index, rendered);
}

Json turns() {
  return Json::parse(R"([{"role": "user", "content": "Grüezi"},
                         {"role": "assistant", "content": "日 one"},
                         {"role": "user", "content": "more"},
                         {"role": "assistant", "content": "two\n"}])",
                     "turns");
}

TEST(MaskedChat, GenerationBlocksAreTheTargets) {
  const Json messages = turns();
  const auto chat = render_masked(template_of("chatml_generation.jinja"), {.messages = &messages});
  ASSERT_TRUE(chat.has_value());
  EXPECT_EQ(targets_of(*chat), (Texts{"日 one<|im_end|>", "two\n<|im_end|>"}));
}

TEST(MaskedChat, EmptyGenerationBlocksAreNoTargets) {
  const Json messages = turns();
  const ChatTemplate chat_template = ChatTemplate::parse(
      "{% generation %}{% endgeneration %}a{% generation %}b{% endgeneration %}", "x", {});
  EXPECT_EQ(targets_of(*render_masked(chat_template, {.messages = &messages})), Texts{"b"});
}

TEST(MaskedChat, NestedGenerationBlocksAreOneTarget) {
  const Json messages = turns();
  const ChatTemplate chat_template = ChatTemplate::parse(
      "a{% generation %}b{% generation %}c{% endgeneration %}d{% endgeneration %}"
      "{% generation %}e{% endgeneration %}",
      "x", {});
  EXPECT_EQ(targets_of(*render_masked(chat_template, {.messages = &messages})),
            (Texts{"bcd", "e"}));
}

TEST(MaskedChat, PrefixesGiveWhatMessagesAdd) {
  const Json messages = turns();
  const Chat given = {.messages = &messages, .add_generation_prompt = true};
  const auto chat = render_masked(template_of("qwen25_tools.jinja"), given);
  ASSERT_TRUE(chat.has_value());
  EXPECT_EQ(targets_of(*chat), (Texts{"日 one<|im_end|>\n", "two\n<|im_end|>\n"}));
  EXPECT_TRUE(chat->text.ends_with("two\n<|im_end|>\n"));
}

TEST(MaskedChat, BlocksOfAMacroGiveWayToPrefixes) {
  const Json messages = turns();
  const ChatTemplate chat_template = ChatTemplate::parse(
      "{% macro say(m) %}{% generation %}{{ m.content }};{% endgeneration %}{% endmacro %}"
      "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'user' %}{{ m.content }};"
      "{% else %}{{ say(m) }}{% endif %}{% endfor %}{{ 'a:' if add_generation_prompt }}",
      "x", {});
  EXPECT_EQ(targets_of(*render_masked(chat_template, {.messages = &messages})),
            (Texts{"日 one;", "two\n;"}));
}

TEST(MaskedChat, StrippedReasoningLeavesTheTurns) {
  const Json messages = Json::parse(
      R"([{"role": "user", "content": "q"},
          {"role": "assistant", "content": "<think>\nwhy\n</think>\n\none"},
          {"role": "user", "content": "r"},
          {"role": "assistant", "content": "<think>\nhow\n</think>\n\ntwo"}])",
      "turns");
  const Chat chat = {.messages = &messages};
  const ChatTemplate chat_template = template_of("qwen3_reasoning.jinja");
  EXPECT_FALSE(render_masked(chat_template, chat).has_value());
  ASSERT_EQ(assistant_turns(chat), (std::vector<size_t>{1, 3}));
  const auto first = turn_of(chat_template, chat, 1);
  const auto second = turn_of(chat_template, chat, 3);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(targets_of(*first), Texts{"<think>\nwhy\n</think>\n\none<|im_end|>\n"});
  EXPECT_EQ(targets_of(*second), Texts{"<think>\nhow\n</think>\n\ntwo<|im_end|>\n"});
  EXPECT_EQ(second->text.find("why"), std::string::npos);
}

TEST(MaskedChat, MovedToolsLeaveTheTurns) {
  const Json messages = turns();
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f"}}])", "tools");
  const Chat chat = {.messages = &messages, .tools = &tools};
  const ChatTemplate chat_template = template_of("mistral_tools.jinja");
  EXPECT_FALSE(render_masked(chat_template, chat).has_value());
  EXPECT_EQ(targets_of(*turn_of(chat_template, chat, 1)), Texts{" 日 one</s>"});
  EXPECT_EQ(targets_of(*turn_of(chat_template, chat, 3)), Texts{" two</s>"});
  const Chat plain = {.messages = &messages};
  EXPECT_EQ(targets_of(*render_masked(chat_template, plain)), (Texts{" 日 one</s>", " two</s>"}));
}

TEST(MaskedChat, AnswersWithoutTheReasoningThatThePromptOpensBeginBehindTheHeader) {
  const Json messages = Json::parse(R"([{"role": "user", "content": "q"},
                                        {"role": "assistant", "content": "<b>one"},
                                        {"role": "user", "content": "r"},
                                        {"role": "assistant", "content": "Ah"}])",
                                    "turns");
  const Chat chat = {.messages = &messages};
  const ChatTemplate chat_template = template_of("deepseek.jinja");
  const auto whole = render_masked(chat_template, chat);
  const auto turn = turn_of(chat_template, chat, 1);
  ASSERT_TRUE(whole && turn);
  const Texts targets = {"<b>one<｜end▁of▁sentence｜>", "Ah<｜end▁of▁sentence｜>"};
  EXPECT_EQ(targets_of(*whole), targets);
  EXPECT_EQ(targets_of(*turn), Texts{targets.front()});
  EXPECT_TRUE(whole->leaves_prompt && turn->leaves_prompt);
}

TEST(MaskedChat, ReasoningThatThePromptDoesNotOpenIsLearned) {
  const Json messages = Json::parse(R"([{"role": "user", "content": "q"},
                      {"role": "assistant", "reasoning_content": "why", "content": "one"}])",
                                    "turns");
  const ChatTemplate chat_template = ChatTemplate::parse(
      "{% for m in messages %}<{{ m.role }}>"
      "{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}{{ m.content }};"
      "{% endfor %}{{ '<assistant>[]' if add_generation_prompt }}",
      "x", {});
  const auto chat = render_masked(chat_template, {.messages = &messages});
  ASSERT_TRUE(chat.has_value());
  EXPECT_EQ(targets_of(*chat), Texts{"(why)one;"});
}

TEST(MaskedChat, AChatMayBeginWithTheAssistantWhereNoPromptCan) {
  const Json messages = Json::parse(R"([{"role": "assistant", "content": "Hello"},
                                        {"role": "user", "content": "q"},
                                        {"role": "assistant", "content": "one"}])",
                                    "turns");
  const ChatTemplate chat_template = ChatTemplate::parse(
      "{{ '' if messages[0].role == 'system' }}{% for m in messages %}<{{ m.role }}>"
      "{{ m.content }};{% endfor %}{{ '<assistant>' if add_generation_prompt }}",
      "x", {});
  const auto chat = render_masked(chat_template, {.messages = &messages});
  ASSERT_TRUE(chat.has_value());
  EXPECT_EQ(targets_of(*chat), (Texts{"Hello;", "one;"}));
  EXPECT_FALSE(chat->leaves_prompt);
}

// As the answers behind it, whether the template writes a prompt of no messages, and something
// before the first message, or not.
TEST(MaskedChat, AGreetingIsLearnedWithoutItsHeader) {
  const Json messages = Json::parse(R"([{"role": "assistant", "content": "Hello"},
                                        {"role": "user", "content": "q"},
                                        {"role": "assistant", "content": "one"}])",
                                    "turns");
  const Chat chat = {.messages = &messages};
  const auto greeting = [&](const char* name) {
    const auto turn = turn_of(template_of(name), chat, 0);
    return turn ? targets_of(*turn) : Texts();
  };
  EXPECT_EQ(greeting("zephyr.jinja"), Texts{"Hello</s>\n"});
  EXPECT_EQ(greeting("chatml.jinja"), Texts{"Hello<|im_end|>\n"});
  EXPECT_EQ(greeting("qwen25_tools.jinja"), Texts{"Hello<|im_end|>\n"});
  EXPECT_EQ(greeting("gpt_oss.jinja"), Texts{"<|channel|>final<|message|>Hello<|return|>"});
  EXPECT_EQ(targets_of(*render_masked(template_of("zephyr.jinja"), chat)),
            (Texts{"Hello</s>\n", "one</s>\n"}));
  const ChatTemplate llama3 = ChatTemplate::parse(
      "{% for m in messages %}{% set c = '<' + m.role + '>' + m.content + ';' %}"
      "{% if loop.index0 == 0 %}{% set c = bos_token + c %}{% endif %}{{ c }}{% endfor %}"
      "{{ '<assistant>' if add_generation_prompt }}",
      "x", {.variables = Json::parse(R"({"bos_token": "<s>"})", "x")});
  EXPECT_EQ(targets_of(*render_masked(llama3, chat)), (Texts{"Hello;", "one;"}));
}

TEST(MaskedChat, ACallOfAToolIsLearnedWhole) {
  const Json messages = Json::parse(R"([{"role": "user", "content": "q"},
                                        {"role": "assistant", "tool_calls": ["f"]}])",
                                    "turns");
  const ChatTemplate chat_template = ChatTemplate::parse(
      "{% for m in messages %}<{{ m.role }}>{% if m.tool_calls %}<tool>{{ m.tool_calls[0] }}"
      "{% else %}{{ m.content }}{% endif %};{% endfor %}"
      "{{ '<assistant><think>' if add_generation_prompt }}",
      "x", {});
  EXPECT_EQ(targets_of(*render_masked(chat_template, {.messages = &messages})), Texts{"<tool>f;"});
}

TEST(MaskedChat, BlocksThatAreLostInOneTurnCountInNone) {
  const Json messages = turns();
  const ChatTemplate chat_template = ChatTemplate::parse(
      "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'user' %}{{ m.content }};"
      "{% elif loop.last %}{% set c %}{% generation %}{{ m.content }};{% endgeneration %}{% endset "
      "%}"
      "{{ c }}{% else %}{% generation %}T{% endgeneration %}-{% generation %}{{ m.content }};"
      "{% endgeneration %}{% endif %}{% endfor %}{{ 'a:' if add_generation_prompt }}",
      "x", {});
  EXPECT_FALSE(render_masked(chat_template, {.messages = &messages}).has_value());
  EXPECT_EQ(targets_of(*turn_of(chat_template, {.messages = &messages}, 3)), Texts{"two\n;"});
}

TEST(MaskedChat, AnAnswerWithoutAHeaderOfThePromptIsNoTarget) {
  const Json messages = turns();
  const ChatTemplate chat_template = ChatTemplate::parse(
      "{% for m in messages %}{{ m.content }};{% endfor %}{{ 'x' if add_generation_prompt }}", "x",
      {});
  EXPECT_FALSE(turn_of(chat_template, {.messages = &messages}, 1).has_value());
}

// What a block has is learned, also of a text that the generation prompt has, in whole chats and in
// turns alike.
TEST(MaskedChat, BlocksOfATurnAreThoseThatItAdds) {
  const Json messages = turns();
  const ChatTemplate chat_template = ChatTemplate::parse(
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}[think]"
      "{{ m.content }};{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}"
      "{{ '<assistant>[think]' if add_generation_prompt }}",
      "x", {});
  const Chat chat = {.messages = &messages};
  const Texts targets = {"[think]日 one;", "[think]two\n;"};
  EXPECT_EQ(targets_of(*render_masked(chat_template, chat)), targets);
  EXPECT_EQ(targets_of(*turn_of(chat_template, chat, 1)), Texts{targets[0]});
  EXPECT_EQ(targets_of(*turn_of(chat_template, chat, 3)), Texts{targets[1]});
  EXPECT_FALSE(turn_of(chat_template, chat, 3)->leaves_prompt);
  // A turn that takes away what earlier turns learned is not told from them.
  const ChatTemplate strips = ChatTemplate::parse(
      "{% for m in messages %}{% if m.role == 'assistant' and loop.last %}{% generation %}"
      "{{ m.content }}{% endgeneration %}{% else %}{% generation %}x{% endgeneration %}{% endif %}"
      "{% endfor %}",
      "x", {});
  EXPECT_FALSE(turn_of(strips, {.messages = &messages, .message_count = 1}, 1).has_value() &&
               targets_of(*turn_of(strips, {.messages = &messages}, 1)).empty());
}

// Each rendering takes the time of all values of the chat, also of those that it does not write.
TEST(MaskedChat, ManyRenderingsOfManyValuesAreRefused) {
  std::string text = "[";
  for (int k = 0; k < 200; ++k) {
    text += std::string(k == 0 ? "" : ",") + R"({"role": "user", "content": "q"},)" +
            R"({"role": "assistant", "content": "a", "meta": [)" + "1";
    for (int n = 0; n < 2000; ++n) text += ",1";
    text += "]}";
  }
  const Json messages = Json::parse(text + "]", "turns");
  const ChatTemplate chat_template = ChatTemplate::parse(
      "{% for m in messages %}{{ m.role + m.content }};{% endfor %}"
      "{{ 'assistant' if add_generation_prompt }}",
      "x", {});
  try {
    render_masked(chat_template, {.messages = &messages});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("too many turns"), std::string::npos) << error.what();
  }
}

TEST(MaskedChat, WhatTheTemplateRefusesIsAnError) {
  const Json messages = Json::parse(R"([{"role": "assistant", "content": "first"}])", "turns");
  EXPECT_THROW((void)render_masked(template_of("llama2.jinja"), {.messages = &messages}), Error);
}

}  // namespace
}  // namespace strata::templates
