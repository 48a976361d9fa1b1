// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/config/json.h"

// model.safetensors.index.json: which file of a sharded model holds which tensor.
namespace strata::model {

struct ShardIndex {
  std::vector<std::pair<std::string, std::string>> tensors;  // name, file; in the order of the text
  std::vector<std::string> files;                            // each once, ascending
};

// Whether a name can only mean a file of the directory itself: it is not empty, a path, "." or
// "..".
bool is_plain_file_name(std::string_view name);

// Throws Error (kConfig) that names `source` and the member when weight_map is missing or a file in
// it is not a string or not a plain name.
ShardIndex read_shard_index(const config::Json& json, const std::string& source);

}  // namespace strata::model
