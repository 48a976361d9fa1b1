// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/config/options.h"

namespace strata::session {

// Reads the options of declared units: a JSON object with options of `strata train` by key. Throws
// Error (kUsage) with every mistake, kConfig for a text that is not such an object.
config::Options unit_options(const std::string& json);

}  // namespace strata::session
