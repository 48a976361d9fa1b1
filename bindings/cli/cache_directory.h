// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace strata::cli {

// Where profiles of machines are kept, made if need be; empty where the environment names no place.
std::string cache_directory();

}  // namespace strata::cli
