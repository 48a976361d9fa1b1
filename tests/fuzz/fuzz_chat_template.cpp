// SPDX-License-Identifier: Apache-2.0
// A template and, behind a zero byte, a chat as JSON: refused with our Error within the limits, or
// a text that is UTF-8, with generation blocks in order and targets within it.
#include <cstdint>
#include <string_view>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/config/json.h"
#include "engine/template/masked_chat.h"
#include "engine/text/text_unicode.h"

namespace {

using namespace strata;

void check(const std::vector<templates::ByteRange>& ranges, const std::string& text) {
  size_t at = 0;
  for (const templates::ByteRange& range : ranges) {
    STRATA_CHECK(at <= range.begin && range.begin <= range.end && range.end <= text.size());
    at = range.end;
  }
  STRATA_CHECK(text::find_invalid_utf8(text) == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = std::min(input.find('\0'), input.size());
  // An object of what a template can be given; "messages" alone are the usual case.
  const std::string_view given = input.substr(std::min(zero + 1, input.size()));
  try {
    const config::Json chat =
        given.empty() ? config::Json::parse(R"({"messages": [{"role": "user", "content": "a b"}, )"
                                            R"({"role": "assistant", "content": "<c> "}]})",
                                            "chat")
                      : config::Json::parse(given, "chat");
    const templates::ChatTemplate chat_template = templates::ChatTemplate::parse(
        input.substr(0, zero), "x.jinja",
        {.variables = config::Json::parse(R"({"bos_token": "<s>"})", "variables"),
         .limits = {.steps = 20'000, .memory_bytes = 1 << 20, .output_bytes = 1 << 18}});
    const templates::Chat what = {.messages = chat.find("messages"), .tools = chat.find("tools")};
    const templates::RenderedChat rendered = chat_template.render(what);
    check(rendered.generated, rendered.text);
    if (const auto masked = templates::render_masked(chat_template, what)) {
      check(masked->targets, masked->text);
    }
  } catch (const Error& error) {
    STRATA_CHECK(error.code() == ErrorCode::kConfig || error.code() == ErrorCode::kDoesNotFit);
  }
  return 0;
}
