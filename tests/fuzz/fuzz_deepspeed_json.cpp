// SPDX-License-Identifier: Apache-2.0
// Any bytes as a DeepSpeed file: refused with our Error, or a line for every key, and options that
// the table of options accepts. The first byte is the number of ranks.
#include <cstdint>
#include <string_view>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/config/deepspeed.h"
#include "engine/config/deepspeed_json.h"
#include "engine/config/options.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata::config;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const DeepspeedImport import = import_deepspeed(text, "fuzz", data[0]);
    STRATA_CHECK(import.options.size() <= import.lines.size());
    if (size % 8 != 0) return 0;  // the rest is most of the time
    STRATA_CHECK(without_comments(text).size() == text.size());
    import_report(import, "fuzz");
    import_json(import);
  } catch (const strata::Error& error) {
    STRATA_CHECK(error.code() == strata::ErrorCode::kConfig);
  }
  return 0;
}
