// SPDX-License-Identifier: Apache-2.0
#include "engine/text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace strata::text {

std::string StopStrings::push(std::string_view piece) {
  if (found_) return "";
  held_ += piece;
  size_t end = std::string::npos;
  for (const std::string& string : strings_) end = std::min(end, held_.find(string));
  found_ = end != std::string::npos;
  if (found_) {
    held_.resize(end);
    return std::exchange(held_, "");
  }
  size_t kept = 0;  // bytes at the end that a string may begin with
  for (const std::string& string : strings_) {
    for (size_t count = std::min(held_.size(), string.size() - 1); count > kept; --count) {
      if (held_.ends_with(std::string_view(string).substr(0, count))) kept = count;
    }
  }
  std::string text = held_.substr(0, held_.size() - kept);
  held_.erase(0, text.size());
  return text;
}

std::string StopStrings::finish() {
  return std::exchange(held_, "");
}

}  // namespace strata::text
