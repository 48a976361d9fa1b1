// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "bindings/cli/doctor.h"

namespace strata::cli {

// Checks the drives below a directory with sysfs, through partitions, device mapper and RAID: kind,
// PCIe link, temperature. Tests set `root`, which is put before /sys and /proc.
std::vector<DoctorLine> check_drives(const std::string& directory, const std::string& root = "");

}  // namespace strata::cli
