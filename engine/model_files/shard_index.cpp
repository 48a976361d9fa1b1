// SPDX-License-Identifier: Apache-2.0
#include "engine/model_files/shard_index.h"

#include <set>

#include "engine/model_files/model_path.h"

namespace strata::model {

using config::Json;

bool is_plain_file_name(std::string_view name) {
  constexpr std::string_view kNeverInNames("/\0", 2);
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(kNeverInNames) == std::string_view::npos;
}

ShardIndex read_shard_index(const Json& json, const std::string& source) {
  const Json* map = json.find("weight_map");
  if (map == nullptr || !map->is_object())
    refuse_model(source, "it has no weight_map object (fetch it again)");
  ShardIndex index;
  std::set<std::string> files;
  for (const config::JsonMember& member : map->members()) {
    if (!member.value.is_string())
      refuse_model(source,
                   "the file of " + member.name + " is not a string (fetch the index again)");
    const std::string& file = member.value.string();
    if (!is_plain_file_name(file)) {
      refuse_model(source, "it names the file " + Json(file).dump() +
                               ", which is not a plain file name (fetch the index again)");
    }
    if (!file.ends_with(".safetensors")) {
      refuse_model(source,
                   "it names the file " + Json(file).dump() +
                       ", which is not a .safetensors file (rename it, here and in the index)");
    }
    index.tensors.emplace_back(member.name, file);
    files.insert(file);
  }
  index.files.assign(files.begin(), files.end());
  return index;
}

}  // namespace strata::model
