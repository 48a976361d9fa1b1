// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace strata::config {

// The text of a file of at most `bytes_max`, or of all that comes through a pipe. Waits 2 s for a
// pipe to which nobody writes, and 30 s for a writer who is silent. Throws Error (kConfig).
std::string read_config_file(const std::string& path, size_t bytes_max = 1 << 20);

}  // namespace strata::config
