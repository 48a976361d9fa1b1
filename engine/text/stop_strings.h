// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace strata::text {

// Ends a text that arrives in pieces before the first of the given strings, and holds back what may
// be the beginning of one. Pieces are whole characters, and so is what comes out. Threads: one.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {}

  // The text up to where a string begins or may begin.
  std::string push(std::string_view piece);
  // What was held back, at the end of the text.
  std::string finish();
  // Whether one was found; then the text is over.
  bool is_found() const { return found_; }

 private:
  std::vector<std::string> strings_;
  std::string held_;
  bool found_ = false;
};

}  // namespace strata::text
