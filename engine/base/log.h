// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace strata {

enum class LogLevel { kInfo, kWarning };

// Passes one line to the log sink of the calling thread's environment (environment.h). Not for the
// hot path.
void log(LogLevel level, std::string_view message);

// Returns the text with control characters written as \xNN, because names from files may hold any
// bytes and some would move a terminal's cursor or hide letters. Line ends and tabs stay.
std::string printable(std::string_view text);

}  // namespace strata
