// SPDX-License-Identifier: Apache-2.0
// Templates in the style of model families render what Transformers renders, text and generation
// blocks, of chats that are hard to render; what it refuses is refused. The references come from
// tests/reference/make_chat_template_reference.py; where one differs,
// tests/reference/compare_chat_templates.py shows how.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/json.h"
#include "engine/template/chat_template.h"

namespace strata::templates {
namespace {

using config::Json;

std::string folder() {
  return std::string(STRATA_TEST_DATA) + "/template/";
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// As make_chat_template_reference.py does it.
std::string hash_of(const RenderedChat& chat) {
  std::string bytes = chat.text;
  for (const ByteRange& range : chat.generated)
    bytes += fmt::format("|{},{}", range.begin, range.end);
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

struct Refused {
  std::string hash = "-";
  std::string error;
};

Refused render(const ChatTemplate& chat_template, const Json& job, bool with_prompt) {
  try {
    return {.hash = hash_of(chat_template.render({.messages = job.find("messages"),
                                                  .tools = job.find("tools"),
                                                  .documents = job.find("documents"),
                                                  .variables = job.find("variables"),
                                                  .add_generation_prompt = with_prompt})),
            .error = ""};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return {.hash = "-", .error = error.what()};
  }
}

TEST(TemplateChats, AreThoseOfTransformers) {
  std::vector<Json> jobs;
  std::ifstream file(folder() + "chats.jsonl");
  for (std::string line; std::getline(file, line);) jobs.push_back(Json::parse(line, "chats"));
  ASSERT_GT(jobs.size(), 90u);
  const Json expected = Json::read_file(folder() + "expected.json");
  ASSERT_GE(expected.members().size(), 15u);
  for (const config::JsonMember& one : expected.members()) {
    const ChatTemplate chat_template = ChatTemplate::parse(
        read(folder() + one.name), one.name,
        {.date = {.year = 2024, .month = 7, .day = 26, .hour = 13, .minute = 5, .second = 9}});
    std::istringstream hashes(one.value.string());
    for (size_t k = 0; k < 2 * jobs.size(); ++k) {
      std::string hash;
      hashes >> hash;
      const Refused got = render(chat_template, jobs[k / 2], k % 2 == 1);
      EXPECT_EQ(got.hash, hash) << one.name << ", chat " << k << ": " << got.error;
    }
  }
}

}  // namespace
}  // namespace strata::templates
