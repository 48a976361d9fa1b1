// SPDX-License-Identifier: Apache-2.0
#include "engine/base/failures.h"

#include <algorithm>

namespace strata {
namespace {

// Starts a new line and indents every line of the message.
std::string indented(const std::string& message) {
  std::string text = "\n  ";
  for (const char letter : message)
    text += letter == '\n' ? std::string("\n  ") : std::string(1, letter);
  return text;
}

}  // namespace

void Failures::throw_if_any(const std::string& what) const {
  if (errors_.empty()) return;
  if (errors_.size() == 1) throw errors_.front();
  std::string message = what + ": " + std::to_string(errors_.size()) + " problems";
  for (const Error& error : errors_) message += indented(error.what());
  const auto first = std::ranges::min_element(errors_, {}, &Error::exit_code);
  throw Error(first->code(), message);
}

}  // namespace strata
