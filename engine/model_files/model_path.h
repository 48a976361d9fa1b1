// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "engine/base/error.h"

// Recognizes paths that are not model directories but are given as such, and says what to do.
namespace strata::model {

[[noreturn]] inline void refuse_model(const std::string& object, const std::string& cause) {
  throw Error(ErrorCode::kConfig, "cannot open model: " + object + ": " + cause);
}

// Throws Error (kConfig) unless the directory `path` has a config.json. The message explains
// addresses and names on a hub (nothing is ever downloaded), single files, directories of runs and
// checkpoints, and models in other formats. `flag` is the option that gives the path.
void require_model_directory(const std::string& path, std::string_view flag = "--model");

// Throws Error (kConfig) that names a broken symbolic link in the directory, as in a hub's cache
// that was moved or downloaded in part.
void refuse_broken_links(const std::string& path);

// Throws Error (kConfig) for a directory with a config.json and no safetensors file.
[[noreturn]] void refuse_without_weights(const std::string& path);

}  // namespace strata::model
