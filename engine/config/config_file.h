// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace strata::config {

// Reads a file or a pipe of at most `bytes_max` bytes. Waits 2 s for a writer to open the pipe, and
// 30 s for a silent writer. Throws Error (kConfig).
std::string read_config_file(const std::string& path, size_t bytes_max = 1 << 20);

}  // namespace strata::config
