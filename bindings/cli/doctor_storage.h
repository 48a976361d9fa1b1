// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace strata::cli {

struct DoctorLine {
  enum class Status { kOk, kWarn, kFail };
  Status status = Status::kOk;
  std::string subject;  // what was looked at
  std::string text;     // what was found
  std::string fix;      // what to do; empty when all is well
};

// What `strata doctor` says about the directories meant for scratch, and about what the kernel
// permits. Creates one nameless file of 4 KiB in each directory. Never throws for what it finds.
std::vector<DoctorLine> check_storage(const std::vector<std::string>& directories);

}  // namespace strata::cli
