// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "bindings/cli/doctor.h"

namespace strata::cli {

// What `strata doctor` says about the directories meant for scratch, and about what the kernel
// permits. Writes one nameless file of 64 KiB in each directory and reads it back. Never throws for
// what it finds. `root` is put before /sys, where drives are looked up; tests give a directory.
//
// Findings are added to `lines`. A drive that hangs for good ends the process (process_sinks.h):
// then what was found until then is there, and `checking` names the directory, which is empty
// otherwise.
struct StorageCheck {
  std::vector<DoctorLine> lines;
  std::string checking;
};
void check_storage(const std::vector<std::string>& directories, const std::string& root,
                   StorageCheck& check);

std::vector<DoctorLine> check_storage(const std::vector<std::string>& directories,
                                      const std::string& root = "");

}  // namespace strata::cli
