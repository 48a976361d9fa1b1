// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/config/options.h"

namespace strata::session {

// Reads the options of declared units: a JSON object with options of `strata train` by key. Throws
// Error (kUsage) with every mistake, kConfig for a text that is not such an object.
config::Options unit_options(const std::string& json);

// The member plugin_path of a session's options is none of a command's options: the folder of
// libraries of devices, where these are not beside the library or program.
struct LibraryOptions {
  std::string json;  // the others
  std::string plugin_path;
};
LibraryOptions library_options(const std::string& json);

}  // namespace strata::session
