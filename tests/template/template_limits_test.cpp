// SPDX-License-Identifier: Apache-2.0
// A template cannot use up the machine, and what is refused is named with its place.
#include <gtest/gtest.h>

#include <string>

#include "engine/base/error.h"
#include "engine/config/json.h"
#include "engine/template/chat_template.h"

namespace strata::templates {
namespace {

using config::Json;

std::string error_of(const std::string& source, const TemplateLimits& limits = {},
                     const std::string& messages = "[]") {
  const Json chat = Json::parse(messages, "chat");
  try {
    const std::string text = ChatTemplate::parse(source, "dir/x.jinja", {.limits = limits})
                                 .render({.messages = &chat})
                                 .text;
    return "rendered: " + text.substr(0, 100);
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::kConfig || error.code() == ErrorCode::kDoesNotFit);
    return (error.code() == ErrorCode::kDoesNotFit ? "too large: " : "") +
           std::string(error.what());
  }
}

std::string repeated(const std::string& text, int count) {
  std::string result;
  for (int k = 0; k < count; ++k) result += text;
  return result;
}

TEST(TemplateLimits, ErrorsNameLineAndExpression) {
  EXPECT_EQ(error_of("a\n{% for m in messages %}\n{{ m.content + 1 }}{% endfor %}", {},
                     R"([{"content": "x"}])"),
            "render chat template: dir/x.jinja:3: `m.content + 1`: + has no meaning between a str "
            "and a int (check that the chat has what the template uses, or choose another "
            "template)");
  EXPECT_EQ(error_of("{{ raise_exception('Only users.') }}"),
            "render chat template: dir/x.jinja:1: `raise_exception('Only users.')`: the template "
            "refuses the chat: Only users. (correct the chat, or choose another template)");
  EXPECT_EQ(error_of("\n{{ x | }}"),
            "parse chat template: dir/x.jinja:2: expected a name, not }} (correct the template, or "
            "choose another by its name)");
  EXPECT_NE(error_of("{{ messages.foo.bar }}").find("foo is undefined"), std::string::npos);
  EXPECT_NE(error_of("{{ messages | groupby('role') }}").find("groupby is not supported"),
            std::string::npos);
}

TEST(TemplateLimits, EndlessCallsEnd) {
  EXPECT_NE(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").find("nested deeper"),
            std::string::npos);
}

TEST(TemplateLimits, LongLoopsEnd) {
  const std::string source =
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
  EXPECT_NE(error_of(source, {.steps = 100'000}).find("100000 steps"), std::string::npos);
}

TEST(TemplateLimits, MemoryIsBounded) {
  const TemplateLimits limits = {.memory_bytes = 4 << 20, .output_bytes = 1 << 20};
  for (const char* source :
       {"{% set n = namespace(s='0123456789') %}{% for k in range(99) %}"
        "{% set n.s = n.s + n.s %}{% endfor %}",
        "{% set n = namespace(s=[1]) %}{% for k in range(99) %}"
        "{% set n.s = n.s + n.s %}{% endfor %}",
        "{{ 'x' * 999999999 }}", "{{ [1] * 999999999 }}", "{{ '%9999999d' % 1 }}",
        "{% set a %}{% for k in range(99999) %}{{ '0123456789' * 100 }}{% endfor %}{% endset %}",
        "{% set n = namespace(s='ab') %}{% for k in range(99) %}"
        "{% set n.s = n.s | replace('a', n.s) %}{% endfor %}",
        "{% for k in range(99999) %}{{ '0123456789' * 100 }}{% endfor %}",
        "{% set n = namespace(s=[1]) %}{% for k in range(99) %}"
        "{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s == [n.s] }}",
        "{% set n = namespace(s=[1]) %}{% for k in range(999) %}"
        "{% set n.s = [n.s] %}{% endfor %}{{ n.s }}",
        "{% set n = namespace(s=['a' * 1000000]) %}{% for k in range(20) %}"
        "{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s | tojson }}",
        "{{ ('a' * 100000) | list | join('0123456789' * 1000) }}"}) {
    EXPECT_NE(error_of(source, limits).find("render chat template"), std::string::npos) << source;
  }
}

// The limits of memory and output depend on a budget, so that what goes beyond them is no fault of
// the chat.
TEST(TemplateLimits, WhatDoesNotFitSaysSo) {
  const TemplateLimits limits = {.memory_bytes = 1 << 20, .output_bytes = 1 << 18};
  for (const char* source :
       {"{{ 'x' * 999999999 }}", "{{ [1] * 99999 }}", "{{ 'x' * 300000 }}",
        "{% set a %}{% for k in range(99) %}{{ '0123456789' * 9999 }}{% endfor %}{% endset %}",
        "{{ ('a' * 9999) | replace('a', 'b' * 9999) }}"}) {
    const std::string error = error_of(source, limits);
    EXPECT_TRUE(error.starts_with("too large: render chat template: dir/x.jinja:1: ")) << error;
    EXPECT_TRUE(error.ends_with("(cut the chat into several, or raise --host-memory)")) << error;
  }
}

TEST(TemplateLimits, DeepTemplatesAreRefused) {
  for (const std::string& source :
       {"{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}",
        "{{ " + repeated("not ", 5000) + "1 }}", "{{ " + repeated("-", 5000) + "1 }}",
        "{{ 1" + repeated(" + 1", 5000) + " }}", "{{ x" + repeated(".x", 5000) + " }}",
        "{{ x" + repeated(" | trim", 5000) + " }}", "{{ x" + repeated(" is string", 5000) + " }}",
        repeated("{% if 1 %}", 5000) + repeated("{% endif %}", 5000),
        "{% if 0 %}" + repeated("{% elif 0 %}", 5000) + "{% endif %}",
        "{{ 1 " + repeated("if 1 else 1 ", 5000) + " }}", "{{ " + repeated("[", 5000) + " }}",
        "{% set " + repeated("(", 5000) + " }}"}) {
    EXPECT_TRUE(error_of(source).starts_with("parse chat template")) << source.substr(0, 30);
  }
}

TEST(TemplateLimits, LargeAndMalformedSourcesAreRefused) {
  EXPECT_NE(error_of(std::string(100, 'x'), {.source_bytes = 99}).find("limit of 99"),
            std::string::npos);
  EXPECT_NE(error_of("a\xff").find("byte 1 is not UTF-8"), std::string::npos);
  EXPECT_NE(error_of("x", {}, "[1]").find("not a list of messages"), std::string::npos);
  EXPECT_NE(error_of("x", {}, R"([{"n": 18446744073709551615}])").find("64 bits"),
            std::string::npos);
}

}  // namespace
}  // namespace strata::templates
