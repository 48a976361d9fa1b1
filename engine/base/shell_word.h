// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace strata {

// A word of a command that a message suggests, as a POSIX shell reads it: in single quotes when it
// has any character that a shell treats specially.
std::string shell_word(std::string_view word);

}  // namespace strata
