// SPDX-License-Identifier: Apache-2.0
// Any bytes as a machine's profile: refused with our Error, or figures that are the same when they
// were written and read again.
#include <cstdint>
#include <string_view>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/config/machine.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata::config;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Machine machine;
  try {
    machine = parse_machine(text, "fuzz.toml");
  } catch (const strata::Error& error) {
    STRATA_CHECK(error.code() == strata::ErrorCode::kConfig);
    return 0;
  }
  const std::string written = to_toml(machine);
  STRATA_CHECK(to_toml(parse_machine(written, "written.toml")) == written);
  STRATA_CHECK(machine.cores > 0 && machine.host_bytes > 0 && machine.matmul_flops_per_s > 0);
  return 0;
}
