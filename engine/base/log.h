// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace strata {

enum class LogLevel { kInfo, kWarning };

// One line to the sink of the calling thread's environment (environment.h). Not for the hot path.
void log(LogLevel level, std::string_view message);

// The text with control characters, which could move a terminal's cursor or hide letters, as \xNN;
// line ends and tabs stay. Names that come from files may hold anything.
std::string printable(std::string_view text);

}  // namespace strata
