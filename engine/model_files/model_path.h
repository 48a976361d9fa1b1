// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "engine/base/error.h"

// Recognises what people give in place of a model directory, and says what to do.
namespace strata::model {

[[noreturn]] inline void refuse_model(const std::string& object, const std::string& cause) {
  throw Error(ErrorCode::kConfig, "cannot open model: " + object + ": " + cause);
}

// Throws Error (kConfig) unless there is a config.json in the directory `path`: for addresses and
// names on a hub (nothing is ever downloaded), single files, the directory of a run or checkpoint,
// and models of other formats. `flag` gives it.
void require_model_directory(const std::string& path, std::string_view flag = "--model");

// Throws Error (kConfig) naming a symbolic link in the directory that leads nowhere, as those of a
// hub's cache do after a move or a part of a download.
void refuse_broken_links(const std::string& path);

// Throws Error (kConfig) for a directory with a config.json and no safetensors file.
[[noreturn]] void refuse_without_weights(const std::string& path);

}  // namespace strata::model
