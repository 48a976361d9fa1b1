// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>

#include "engine/base/environment.h"

namespace strata::bench {

// Log lines of this thread, and of those that it starts, go to standard error while it lives.
class PrintLog {
 private:
  Environment environment_{{.log = [](LogLevel, std::string_view line) {
    std::fprintf(stderr, "%s\n", printable(line).c_str());
  }}};
  const Environment::Scope scope_{&environment_};
};

}  // namespace strata::bench
