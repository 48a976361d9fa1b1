// SPDX-License-Identifier: Apache-2.0
// Any bytes as a checkpoint's manifest, or a rank's table, under a checksum that is right: refused
// with our Error, or numbers within their ranges that are the same when they were written and read
// again.
#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/checkpoint/checkpoint_manifest.h"
#include "io/checksum.h"

namespace {

using namespace strata;

constexpr size_t kSealBytes = sizeof(R"(,"checksum":"0123456789abcdef"}
)") - 1;

std::string sealed(std::string_view body) {
  return fmt::format("{},\"checksum\":\"{:016x}\"}}\n", body,
                     io::checksum_block(body.data(), body.size(), 1, 0));
}

// Inputs would never come past a seal of another form.
void check_seal() {
  const std::string text = to_text(checkpoint::StateFile{});
  STRATA_CHECK(sealed(std::string_view(text).substr(0, text.size() - kSealBytes)) == text);
}

void check_file(const checkpoint::StateFile& file) {
  for (const checkpoint::StateExtent& extent : file.extents) {
    STRATA_CHECK(extent.segment >= 0 && extent.first >= 0 && extent.count > 0);
    STRATA_CHECK(extent.bytes > 0 && extent.bytes <= file.bytes - extent.offset);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool seal_is_known = (check_seal(), true);
  STRATA_CHECK(seal_is_known);
  const std::string text = sealed({reinterpret_cast<const char*>(data), size});
  try {
    const checkpoint::StateFile file = checkpoint::parse_state_file(text);
    check_file(file);
    STRATA_CHECK(to_text(checkpoint::parse_state_file(to_text(file))) == to_text(file));
  } catch (const Error& error) {
    STRATA_CHECK(error.code() == ErrorCode::kCorrupt);
  }
  try {
    const checkpoint::CheckpointManifest manifest = checkpoint::parse_manifest(text, "fuzz");
    STRATA_CHECK(manifest.files.size() <= static_cast<size_t>(manifest.world));
    for (const checkpoint::StateFile& file : manifest.files) check_file(file);
    const std::string written = to_text(manifest);
    STRATA_CHECK(to_text(checkpoint::parse_manifest(written, "written")) == written);
  } catch (const Error& error) {
    STRATA_CHECK(error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kConfig);
  }
  return 0;
}
