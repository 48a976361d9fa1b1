// SPDX-License-Identifier: Apache-2.0
// Short templates, each for one thing that Jinja or Python does, render what Transformers renders,
// and what it refuses is refused. The reference comes from
// tests/reference/make_chat_template_reference.py.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/json.h"
#include "engine/template/chat_template.h"

namespace strata::templates {
namespace {

using config::Json;

TEST(TemplateExpressions, AreThoseOfTransformers) {
  std::ifstream file(std::string(STRATA_TEST_DATA) + "/template/expressions.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  const Json variables = Json::parse(line, "expressions.jsonl");
  const Json messages = Json::array();
  int count = 0;
  for (; std::getline(file, line); ++count) {
    const Json row = Json::parse(line, "expressions.jsonl");
    const std::string& source = row.items()[0].string();
    try {
      const ChatTemplate chat_template = ChatTemplate::parse(
          source, "x.jinja",
          {.date = {.year = 2024, .month = 7, .day = 26, .hour = 13, .minute = 5, .second = 9}});
      const RenderedChat chat =
          chat_template.render({.messages = &messages, .variables = &variables});
      ASSERT_EQ(row.items().size(), 3u) << source << " is not refused: " << chat.text;
      EXPECT_EQ(chat.text, row.items()[1].string()) << source;
      std::vector<ByteRange> ranges;
      for (const Json& range : row.items()[2].items()) {
        ranges.push_back({*range.items()[0].uint64(), *range.items()[1].uint64()});
      }
      EXPECT_EQ(chat.generated, ranges) << source;
    } catch (const Error& error) {
      EXPECT_EQ(row.items().size(), 1u) << source << " is refused: " << error.what();
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      EXPECT_NE(std::string(error.what()).find(": x.jinja:"), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(count, 700);
}

}  // namespace
}  // namespace strata::templates
