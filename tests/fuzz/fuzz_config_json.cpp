// SPDX-License-Identifier: Apache-2.0
// Any bytes as a config.json: refused with our Error, or an architecture whose written config reads
// back the same.
#include <cstdint>
#include <string_view>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/model/architecture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using strata::config::Json;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const Json json = Json::parse(text, "fuzz");
    STRATA_CHECK(Json::parse(json.dump(), "again").dump() == json.dump());
    const auto architecture = strata::model::read_architecture(json, "fuzz");
    const Json written = strata::model::write_config(architecture, strata::DType::kF32);
    const auto again = strata::model::read_architecture(written, "written");
    STRATA_CHECK(strata::model::write_config(again, strata::DType::kF32).dump() == written.dump());
  } catch (const strata::Error& error) {
    STRATA_CHECK(error.code() == strata::ErrorCode::kConfig);
  }
  return 0;
}
