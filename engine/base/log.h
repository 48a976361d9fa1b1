// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace strata {

enum class LogLevel { kInfo, kWarning };

// One line to standard error, whole even when several threads write. Not for the hot path.
void log(LogLevel level, std::string_view message);

}  // namespace strata
