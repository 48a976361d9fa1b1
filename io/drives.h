// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace strata::io {

// Paths of a directory whose names begin with `prefix`, sorted; none where it cannot be read.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& directory,
                                              const std::string& prefix = "");

// Where sysfs describes the whole drives that a directory lies on, through partitions, device
// mapper and RAID; none where it knows of none. `root` is put before /sys and /proc: tests give a
// directory.
std::vector<std::filesystem::path> drives_of(const std::string& directory,
                                             const std::string& root = "");

// The drives that directories lie on, each once: what a file system of several drives counts as is
// each of them, and several on one drive are one. Where sysfs knows no drive, the file system.
std::vector<std::string> drives_below(const std::vector<std::string>& directories,
                                      const std::string& root = "");

// Whether two of the directories lie on one drive.
bool share_a_drive(const std::vector<std::string>& directories, const std::string& root = "");

}  // namespace strata::io
