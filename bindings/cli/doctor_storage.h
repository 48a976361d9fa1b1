// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "bindings/cli/doctor.h"

namespace strata::cli {

// The checks of `strata doctor` for scratch directories and for io_uring. Writes one nameless file
// of 64 KiB in each directory and reads it back. Findings never throw. Tests set `root`, which is
// put before /sys, where drives are looked up.
//
// Findings are added to `lines`. When a hanging drive ends the process (process_sinks.h), `lines`
// has the findings so far, and `checking` names the directory; otherwise `checking` is empty.
struct StorageCheck {
  std::vector<DoctorLine> lines;
  std::string checking;
};
void check_storage(const std::vector<std::string>& directories, const std::string& root,
                   StorageCheck& check);

std::vector<DoctorLine> check_storage(const std::vector<std::string>& directories,
                                      const std::string& root = "");

}  // namespace strata::cli
