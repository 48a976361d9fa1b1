// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace strata::cli {

// Whether standard input is a pipe or a file, not a terminal or nothing.
bool has_piped_input();

// All of it. Throws Error when it has more than `bytes_max` bytes.
std::string read_standard_input(int64_t bytes_max);

}  // namespace strata::cli
