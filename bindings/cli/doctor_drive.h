// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "bindings/cli/doctor.h"

namespace strata::cli {

// What sysfs says of the drives below a directory, through partitions, device mapper and RAID:
// kind, PCIe link, temperature. `root` is put before /sys and /proc; tests give a directory.
std::vector<DoctorLine> check_drives(const std::string& directory, const std::string& root = "");

}  // namespace strata::cli
