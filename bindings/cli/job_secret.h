// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace strata::cli {

inline constexpr size_t kSecretBytesMax = 1024;

// The secret of a job in a file that only this user may read; white space around it does not count.
// Failure: Error (kConfig).
std::string read_secret(const std::string& path);

}  // namespace strata::cli
