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
  using strata::model::write_config;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const Json json = Json::parse(text, "fuzz");
    const auto architecture = strata::model::read_architecture(json, "fuzz");
    const std::string written = write_config(architecture, strata::DType::kF32).dump();
    const auto again = strata::model::read_architecture(Json::parse(written, "written"), "written");
    STRATA_CHECK(write_config(again, strata::DType::kF32).dump() == written);
  } catch (const strata::Error& error) {
    STRATA_CHECK(error.code() == strata::ErrorCode::kConfig);
  }
  return 0;
}
