// SPDX-License-Identifier: Apache-2.0
// Any bytes as a model.safetensors.index.json: refused with our Error, or files that are plain
// names in the model's own directory. What is JSON is still that when it was written and read
// again.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/model_files/shard_index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using strata::config::Json;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const Json json = Json::parse(text, "fuzz");
    const std::string written = json.dump();
    STRATA_CHECK(Json::parse(written, "written").dump() == written);
    const strata::model::ShardIndex index = strata::model::read_shard_index(json, "fuzz");
    for (const auto& [tensor, file] : index.tensors) {
      STRATA_CHECK(file.find('/') == std::string::npos && file != ".." && !file.empty());
      STRATA_CHECK(std::binary_search(index.files.begin(), index.files.end(), file));
    }
  } catch (const strata::Error& error) {
    STRATA_CHECK(error.code() == strata::ErrorCode::kConfig);
  }
  return 0;
}
