// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <string>

#include "engine/base/environment.h"

namespace strata::test {

// Captures log lines and hangs of this thread, and of threads that it starts, while the object
// lives.
class LogCapture {
 public:
  LogCapture()
      : environment_(
            {.log = [this](LogLevel, std::string_view line) { add(std::string(line)); },
             .hang = [this](const Error& error) { add(std::string("hang: ") + error.what()); }}) {}

  std::string text() const {
    const std::lock_guard lock(mu_);
    return text_;
  }

 private:
  void add(const std::string& line) {
    const std::lock_guard lock(mu_);
    text_ += line + "\n";
  }

  mutable std::mutex mu_;
  std::string text_;  // Guarded by mu_
  Environment environment_;
  const Environment::Scope scope_{&environment_};
};

}  // namespace strata::test
