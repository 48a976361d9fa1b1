// SPDX-License-Identifier: Apache-2.0
#include "engine/config/list_text.h"

#include <string_view>

namespace strata::config {
namespace {

std::string without_spaces_around(const std::string& text) {
  const size_t first = text.find_first_not_of(' ');
  return first == text.npos ? "" : text.substr(first, text.find_last_not_of(' ') + 1 - first);
}

}  // namespace

std::vector<std::string> split_list(const std::vector<std::string>& values) {
  if (values.size() != 1) return values;
  std::vector<std::string> parts(1);
  const std::string_view text = values[0];
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == ',') {
      parts.emplace_back();
      continue;
    }
    if (text.substr(at, 2) == "\\,") ++at;
    parts.back() += text[at];
  }
  if (parts.size() == 1) return parts;
  for (std::string& part : parts) part = without_spaces_around(part);
  return parts;
}

std::vector<std::string> as_array(const OptionRow* row, std::vector<std::string> parts) {
  if (row == nullptr || row->type != OptionType::kList || parts.size() != 1) return parts;
  std::string whole;
  for (const char c : parts.front()) {
    if (c == ',') whole += '\\';
    whole += c;
  }
  return {whole};
}

}  // namespace strata::config
