// SPDX-License-Identifier: Apache-2.0
#include "io/drives.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

namespace strata::io {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLevels = 8;  // of stacked block devices

// The sysfs directory of the block device below a directory's file system. File systems such as
// btrfs have a device number of their own; for them the mount table names the device.
std::optional<fs::path> block_device_of(const std::string& directory, const std::string& root) {
  struct stat info {};
  if (stat(directory.c_str(), &info) != 0) return std::nullopt;
  const std::string number = fmt::format("{}:{}", major(info.st_dev), minor(info.st_dev));
  std::error_code error;
  fs::path path = fs::canonical(root + "/sys/dev/block/" + number, error);
  if (!error) return path;
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    // 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw
    std::istringstream words(line);
    std::string id, parent, device, word, source;
    words >> id >> parent >> device;
    if (device != number) continue;
    while (words >> word && word != "-") {
    }
    words >> word >> source;
    path = fs::canonical(root + "/sys/class/block/" + fs::path(source).filename().string(), error);
    if (!error) return path;
  }
  return std::nullopt;
}

// Adds the whole drives below a block device.
void add_drives(const fs::path& device, int level, std::vector<fs::path>& drives) {
  std::error_code error;
  const std::vector<fs::path> slaves = entries_of(device / "slaves");
  for (const fs::path& slave : slaves) {
    const fs::path path = fs::canonical(slave, error);
    if (!error && level < kMostLevels) add_drives(path, level + 1, drives);
  }
  if (!slaves.empty()) return;
  const fs::path drive = fs::exists(device / "partition", error) ? device.parent_path() : device;
  if (std::find(drives.begin(), drives.end(), drive) == drives.end()) drives.push_back(drive);
}

}  // namespace

std::vector<fs::path> entries_of(const fs::path& directory, const std::string& prefix) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with(prefix)) entries.push_back(at->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::vector<fs::path> drives_of(const std::string& directory, const std::string& root) {
  std::vector<fs::path> drives;
  const std::optional<fs::path> device = block_device_of(directory, root);
  if (device) add_drives(*device, 0, drives);
  return drives;
}

std::vector<std::string> drives_below(const std::vector<std::string>& directories,
                                      const std::string& root) {
  std::set<std::string> names;
  for (const std::string& directory : directories) {
    const std::vector<fs::path> drives = drives_of(directory, root);
    for (const fs::path& drive : drives) names.insert(drive.filename().string());
    struct stat info {};
    if (drives.empty() && stat(directory.c_str(), &info) == 0) {
      names.insert(fmt::format("{}:{}", major(info.st_dev), minor(info.st_dev)));
    }
  }
  return {names.begin(), names.end()};
}

bool share_a_drive(const std::vector<std::string>& directories, const std::string& root) {
  size_t of_each = 0;
  for (const std::string& directory : directories) {
    of_each += drives_below({directory}, root).size();
  }
  return drives_below(directories, root).size() < of_each;
}

}  // namespace strata::io
