// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata::cli {

// One finding of `strata doctor`.
struct DoctorLine {
  enum class Status : uint8_t { kOk, kWarn, kFail };
  Status status = Status::kOk;
  std::string subject;  // what was checked: "memory lock limit"
  std::string text;     // what was found, with values and units
  std::string fix;      // what to do; empty when the status is kOk
};

// Advice for a limit on locked memory that is too small.
inline constexpr const char* kMemoryLockFix =
    "ulimit -l unlimited (LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for docker)";

}  // namespace strata::cli
