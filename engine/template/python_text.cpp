// SPDX-License-Identifier: Apache-2.0
#include "engine/template/python_text.h"

#include <algorithm>
#include <array>

#include "engine/text/text_unicode.h"

namespace strata::templates {
namespace {

using text::code_point_at;
using text::utf8_length;
using text::utf8_start;

template <class Removes>
std::string_view strip_if(std::string_view text, Side side, const Removes& removes) {
  size_t begin = 0;
  size_t end = text.size();
  if (side != Side::kRight) {
    while (begin < end && removes(begin)) begin += utf8_length(text[begin]);
  }
  if (side != Side::kLeft) {
    while (end > begin && removes(utf8_start(text, end - 1))) {
      end = utf8_start(text, end - 1);
    }
  }
  return text.substr(begin, end - begin);
}

bool is_space_at(std::string_view text, size_t at) {
  return is_python_space(code_point_at(text, at));
}

// The characters at which str.splitlines() cuts.
bool ends_line(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

bool is_python_space(uint32_t c) {
  return text::is_white_space(c) || (c >= 0x1C && c <= 0x1F);
}

int64_t length_of(std::string_view text) {
  return static_cast<int64_t>(text.size()) -
         std::count_if(text.begin(), text.end(), text::is_continuation);
}

size_t offset_of(std::string_view text, int64_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += utf8_length(text[at]);
  return at;
}

std::string_view strip(std::string_view text, Side side) {
  return strip_if(text, side, [&](size_t at) { return is_space_at(text, at); });
}

std::string_view strip(std::string_view text, Side side, std::string_view characters) {
  return strip_if(text, side, [&](size_t at) {
    return characters.find(text.substr(at, utf8_length(text[at]))) != std::string_view::npos;
  });
}

std::vector<std::string_view> split_spaces(std::string_view text, int64_t most) {
  std::vector<std::string_view> parts;
  text = strip(text, Side::kLeft);
  while (!text.empty()) {
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size() && !is_space_at(text, end)) end += utf8_length(text[end]);
    parts.push_back(text.substr(0, end));
    text = strip(text.substr(end), Side::kLeft);
  }
  return parts;
}

std::vector<std::string_view> rsplit_spaces(std::string_view text, int64_t most) {
  std::vector<std::string_view> parts;
  text = strip(text, Side::kRight);
  while (!text.empty()) {
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.push_back(text);
      break;
    }
    size_t begin = text.size();
    while (begin > 0 && !is_space_at(text, utf8_start(text, begin - 1))) {
      begin = utf8_start(text, begin - 1);
    }
    parts.push_back(text.substr(begin));
    text = strip(text.substr(0, begin), Side::kRight);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    int64_t most) {
  std::vector<std::string_view> parts;
  size_t at = 0;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t found = text.find(separator, at);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(at, found - at));
    at = found + separator.size();
  }
  parts.push_back(text.substr(at));
  return parts;
}

std::vector<std::string_view> rsplit(std::string_view text, std::string_view separator,
                                     int64_t most) {
  std::vector<std::string_view> parts;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t found = text.rfind(separator);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(found + separator.size()));
    text = text.substr(0, found);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keeps_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = code_point_at(text, at);
    size_t next = at + utf8_length(text[at]);
    if (ends_line(c)) {
      if (c == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(begin, (keeps_ends ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t most) {
  std::string out;
  size_t at = 0;
  if (from.empty()) {  // before each character, and at the end
    for (; most != 0; --most) {
      out += to;
      if (at == text.size()) return out;
      out += text.substr(at, utf8_length(text[at]));
      at += utf8_length(text[at]);
    }
    return out.append(text.substr(at));
  }
  for (; most != 0; --most) {
    const size_t found = text.find(from, at);
    if (found == std::string_view::npos) break;
    out.append(text.substr(at, found - at)).append(to);
    at = found + from.size();
  }
  return out.append(text.substr(at));
}

bool has_only_case(std::string_view text, bool (*is_wanted)(uint32_t), bool (*is_other)(uint32_t)) {
  bool has_wanted = false;
  for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    const uint32_t c = code_point_at(text, at);
    if (is_other(c)) return false;
    has_wanted = has_wanted || is_wanted(c);
  }
  return has_wanted;
}

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace strata::templates
