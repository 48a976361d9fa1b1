// SPDX-License-Identifier: Apache-2.0
#include "engine/base/log.h"

#include <cstdio>
#include <string>

namespace strata {

void log(LogLevel level, std::string_view message) {
  std::string line = level == LogLevel::kWarning ? "warning: " : "";
  line.append(message);
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace strata
