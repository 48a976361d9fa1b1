// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "bindings/cli/doctor.h"

namespace strata::cli {

// What sysfs says of the drives below a directory, through partitions, device mapper and RAID:
// kind, PCIe link, temperature. `root` is put before /sys and /proc; tests give a directory.
std::vector<DoctorLine> check_drives(const std::string& directory, const std::string& root = "");

// The drives that directories lie on, each once: what a file system of several drives counts as is
// each of them, and several on one drive are one. Where sysfs knows no drive, the file system.
std::vector<std::string> drives_below(const std::vector<std::string>& directories,
                                      const std::string& root = "");

}  // namespace strata::cli
