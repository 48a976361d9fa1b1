// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/doctor_storage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "bindings/cli/doctor_drive.h"
#include "engine/base/units.h"
#include "io/channel.h"

namespace strata::cli {
namespace {

using Status = DoctorLine::Status;

constexpr uint64_t kLittleSpaceBytes = uint64_t{50} << 30;

struct FileSystemKind {
  unsigned long magic;
  const char* name;
  Status status;
  const char* fix;
};
constexpr const char* kNetworkFix =
    "use a drive of this machine: latency and locking of a network differ";
constexpr FileSystemKind kKinds[] = {
    {0xEF53, "ext4", Status::kOk, ""},
    {0x58465342, "xfs", Status::kOk, ""},
    {0x9123683E, "btrfs", Status::kWarn,
     "turn copy-on-write off: chattr +C on the empty directory"},
    {0x2FC12FC1, "zfs", Status::kWarn, "it caches and copies; ext4 or xfs is faster for scratch"},
    {0xF2F52010, "f2fs", Status::kOk, ""},
    {0x01021994, "tmpfs", Status::kFail,
     "it is memory, which scratch is to save: name a directory on a drive"},
    {0x858458F6, "ramfs", Status::kFail,
     "it is memory, which scratch is to save: name a directory on a drive"},
    {0x794C7630, "overlay", Status::kWarn,
     "mount a volume of the host into the container and use that"},
    {0x6969, "NFS", Status::kWarn, kNetworkFix},
    {0xFF534D42, "CIFS", Status::kWarn, kNetworkFix},
    {0xFE534D42, "SMB", Status::kWarn, kNetworkFix},
    {0x01021997, "9p", Status::kWarn, kNetworkFix},
    {0x0BD00BD0, "Lustre", Status::kWarn, kNetworkFix},
    {0x65735546, "FUSE", Status::kWarn,
     "a user-space file system is slow for scratch: use ext4 or xfs"},
};

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Our errors end with what to do, in brackets.
DoctorLine failure(const std::string& directory, const std::string& message) {
  const size_t open = message.rfind(" (");
  if (open == std::string::npos || message.back() != ')') {
    return {Status::kFail, directory, message, "name another directory"};
  }
  return {Status::kFail, directory, message.substr(0, open),
          message.substr(open + 2, message.size() - open - 3)};
}

DoctorLine check_kind(const std::string& directory) {
  struct statfs info {};
  if (statfs(directory.c_str(), &info) != 0) {
    return {Status::kFail, directory, std::strerror(errno), "name a directory that exists"};
  }
  const auto magic = static_cast<unsigned long>(info.f_type) & 0xffffffffUL;
  for (const FileSystemKind& kind : kKinds) {
    if (kind.magic == magic)
      return {kind.status, directory, fmt::format("file system {}", kind.name), kind.fix};
  }
  return {Status::kWarn, directory, fmt::format("file system of unknown kind {:#x}", magic),
          "measure it: strata bench io --nvme " + directory};
}

DoctorLine check_space(const std::string& directory) {
  struct statvfs space {};
  if (statvfs(directory.c_str(), &space) != 0)
    return {Status::kFail, directory, std::strerror(errno), "name another directory"};
  const uint64_t free = uint64_t{space.f_bavail} * space.f_frsize;
  const std::string text = format_bytes(static_cast<int64_t>(free)) + " free";
  if (free >= kLittleSpaceBytes) return {Status::kOk, directory, text, ""};
  return {Status::kWarn, directory, text,
          "training state takes 14 to 16 bytes a parameter; free space there"};
}

// A real volume of one block: the same code path as a run takes.
DoctorLine check_scratch(const std::string& directory) {
  try {
    const io::Volume volume({.directories = {directory},
                             .bytes = 65536,
                             .owner = "strata doctor",
                             .allow_memory_filesystem = true});
    const io::ScratchFile& file = volume.files()[0];
    if (!file.direct) {
      return {Status::kWarn, directory,
              "scratch works, but without O_DIRECT: I/O goes through the page cache",
              "use ext4 or xfs on a local drive"};
    }
    return {Status::kOk, directory,
            fmt::format("scratch works, O_DIRECT aligned to {} bytes", file.alignment), ""};
  } catch (const Error& error) {
    return failure(directory, error.what());
  }
}

DoctorLine check_uring() {
  const int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  io::RingOptions options;
  options.backend = io::Backend::kUring;
  options.files = {{fd, "/dev/null"}};
  DoctorLine line{Status::kOk, "io_uring", "available", ""};
  try {
    const io::Ring ring(options);
  } catch (const Error& error) {
    const std::string sysctl = read_line("/proc/sys/kernel/io_uring_disabled");
    line = {
        Status::kWarn, "io_uring",
        std::string(error.what()) +
            (sysctl.empty() ? "" : ", kernel.io_uring_disabled = " + sysctl),
        "threads are used instead, at more processor time; in a container allow io_uring_setup, "
        "io_uring_enter and io_uring_register in the seccomp profile"};
  }
  if (fd >= 0) close(fd);
  return line;
}

}  // namespace

std::vector<DoctorLine> check_storage(const std::vector<std::string>& directories,
                                      const std::string& root) {
  std::vector<DoctorLine> lines;
  for (const std::string& directory : directories) {
    lines.push_back(check_kind(directory));
    if (lines.back().status == Status::kFail) continue;
    lines.push_back(check_space(directory));
    lines.push_back(check_scratch(directory));
    for (DoctorLine& line : check_drives(directory, root)) lines.push_back(std::move(line));
  }
  lines.push_back(check_uring());
  return lines;
}

}  // namespace strata::cli
