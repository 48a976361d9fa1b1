// SPDX-License-Identifier: Apache-2.0
// Renders chats for tests/reference/compare_chat_templates.py:
//
//   render_chats TEMPLATE CHATS
//
// CHATS has a JSON object a line: "messages", "add_generation_prompt" and, if wanted, "tools",
// "documents" and "variables". Prints a JSON object for each: "text" and "generated", the ranges of
// bytes within {% generation %} blocks, or "error". The date is 2024-07-26 13:05:09.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "engine/base/error.h"
#include "engine/config/json.h"
#include "engine/template/chat_template.h"

namespace {

using strata::config::Json;

std::string read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

const Json* member(const Json& job, const char* name) {
  const Json* value = job.find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Json render(const std::string& source, const char* path, const Json& job) {
  using namespace strata::templates;
  Json result = Json::object();
  try {
    const ChatTemplate chat_template = ChatTemplate::parse(
        source, path,
        {.date = {.year = 2024, .month = 7, .day = 26, .hour = 13, .minute = 5, .second = 9}});
    const Json* prompts = job.find("add_generation_prompt");
    const Chat chat = {.messages = job.find("messages"),
                       .tools = member(job, "tools"),
                       .documents = member(job, "documents"),
                       .variables = member(job, "variables"),
                       .add_generation_prompt = prompts != nullptr && *prompts->boolean()};
    const auto begin = std::chrono::steady_clock::now();
    RenderedChat rendered = chat_template.render(chat);
    const auto took = std::chrono::steady_clock::now() - begin;
    Json ranges = Json::array();
    for (const ByteRange& range : rendered.generated) {
      ranges.push_back(Json(Json::Array{Json(static_cast<int64_t>(range.begin)),
                                        Json(static_cast<int64_t>(range.end))}));
    }
    result.set("text", Json(std::move(rendered.text)));
    result.set("generated", std::move(ranges));
    result.set("has_lost_blocks", Json(rendered.has_lost_blocks));
    result.set("microseconds", Json(std::chrono::duration<double, std::micro>(took).count()));
  } catch (const strata::Error& error) {
    result.set("error", Json(error.what()));
  }
  return result;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::fputs("usage: render_chats TEMPLATE CHATS\n", stderr);
    return 2;
  }
  const std::string source = read(arguments[1]);
  std::ifstream chats(arguments[2]);
  for (std::string line; std::getline(chats, line);) {
    std::puts(render(source, arguments[1], Json::parse(line, arguments[2])).dump().c_str());
  }
}
