// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

// The script by which bash completes command lines, made from the option table.
namespace strata::config {

// Returns the script for "bash", which the user sources. Throws Error (kUsage) for any other shell.
std::string completion_text(std::string_view shell);

}  // namespace strata::config
