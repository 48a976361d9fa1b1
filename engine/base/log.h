// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace strata {

enum class LogLevel { kInfo, kWarning };

// One line to standard error, whole even when several threads write. Not for the hot path.
void log(LogLevel level, std::string_view message);

// Text with what moves a terminal's cursor or hides letters as \xNN, but for the ends of lines:
// names out of files are anybody's.
std::string printable(std::string_view text);

}  // namespace strata
