// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors header: refused with our Error, or entries that lie within the file,
// touch and cover it. The first byte chooses how much data the file pretends to have.
#include <cstdint>
#include <string_view>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/model_files/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const int64_t data_start = 8 + static_cast<int64_t>(text.size());
  const int64_t file_bytes = data_start + data[0];
  try {
    int64_t end = data_start;
    for (const auto& entry : strata::model::parse_safetensors_header(text, file_bytes, "fuzz")) {
      STRATA_CHECK(entry.offset == end && entry.bytes >= 0);
      end += entry.bytes;
    }
    STRATA_CHECK(end == file_bytes);
  } catch (const strata::Error& error) {
    STRATA_CHECK(error.code() == strata::ErrorCode::kCorrupt);
  }
  return 0;
}
