// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace strata::io {

// Paths in a directory whose names begin with `prefix`, sorted; empty when it cannot be read.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& directory,
                                              const std::string& prefix = "");

// The sysfs directories of the whole drives under a directory, through partitions, device mapper
// and RAID; empty when sysfs knows none. Tests set `root`, which is put before /sys and /proc.
std::vector<std::filesystem::path> drives_of(const std::string& directory,
                                             const std::string& root = "");

// The drives under the directories, each once. A file system on several drives counts as all of
// them; where sysfs knows no drive, the file system itself counts.
std::vector<std::string> drives_below(const std::vector<std::string>& directories,
                                      const std::string& root = "");

// Whether two of the directories are on one drive.
bool share_a_drive(const std::vector<std::string>& directories, const std::string& root = "");

}  // namespace strata::io
