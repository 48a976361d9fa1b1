// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace strata::cli {

// The directory for machine profiles; empty when the environment names no place.
std::string cache_directory();

}  // namespace strata::cli
