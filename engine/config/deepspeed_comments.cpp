// SPDX-License-Identifier: Apache-2.0
#include "engine/config/deepspeed.h"

namespace strata::config {

std::string without_comments(std::string_view text) {
  std::string out(text);
  size_t comma = std::string::npos;  // the last comma with nothing but blanks behind it
  const auto blank = [&out](size_t from, size_t to) {
    for (size_t at = from; at < to; ++at) {
      if (out[at] != '\n') out[at] = ' ';
    }
  };
  for (size_t at = 0; at < out.size(); ++at) {
    const char letter = out[at];
    const std::string_view two = text.substr(at, 2);
    if (letter == '"') {
      for (++at; at < out.size() && out[at] != '"'; ++at) at += out[at] == '\\' ? 1 : 0;
      comma = std::string::npos;
    } else if (letter == '#' || two == "//" || two == "/*") {
      const bool block = two == "/*";
      size_t end = block ? text.find("*/", at + 2) : text.find('\n', at);
      end = end == std::string_view::npos ? out.size() : end + (block ? 2 : 0);
      blank(at, end);
      at = end - 1;
    } else if (letter == ',') {
      comma = at;
    } else if (letter == '}' || letter == ']') {
      if (comma != std::string::npos) out[comma] = ' ';
      comma = std::string::npos;
    } else if (letter != ' ' && letter != '\t' && letter != '\n' && letter != '\r') {
      comma = std::string::npos;
    }
  }
  return out;
}

Json parse_deepspeed(std::string_view text, const std::string& name) {
  return Json::parse(without_comments(text), name, {},
                     "JSON is read, with comments and commas behind last members: names and texts "
                     "stand in double quotes, as in {\"gradient_clipping\": 1.0}");
}

}  // namespace strata::config
