// SPDX-License-Identifier: Apache-2.0
// Any bytes as a --config file: refused with our Error, or options that are the same when they were
// written to run.json and read again.
#include <cstdint>
#include <string_view>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/config/options.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata::config;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Options options;
  try {
    options = resolve(Command::kTrain, {.toml = text, .toml_name = "fuzz.toml"});
  } catch (const strata::Error& error) {
    STRATA_CHECK(error.code() == strata::ErrorCode::kConfig ||
                 error.code() == strata::ErrorCode::kUsage);
    return 0;
  }
  const std::string written = to_json(Command::kTrain, options);
  STRATA_CHECK(to_json(Command::kTrain, options_from_json(Command::kTrain, written)) == written);
  return 0;
}
