// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

// The script with which bash completes command lines, made from the option table.
namespace strata::config {

// For "bash", to be sourced. Throws Error (kUsage) for any other shell.
std::string completion_text(std::string_view shell);

}  // namespace strata::config
