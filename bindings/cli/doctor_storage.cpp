// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/doctor_storage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "bindings/cli/doctor_drive.h"
#include "engine/base/shell_word.h"
#include "engine/base/units.h"
#include "io/channel.h"
#include "io/huge_memory.h"
#include "io/scratch_file.h"

namespace strata::cli {
namespace {

using Status = DoctorLine::Status;

constexpr uint64_t kLittleSpaceBytes = uint64_t{50} << 30;
constexpr int64_t kBlockBytes = 64 * kKiB;  // written and read back to test scratch
constexpr double kDeadlineS = 10;

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
     "it uses the memory that scratch should save: name a directory on a drive"},
    {0x858458F6, "ramfs", Status::kFail,
     "it uses the memory that scratch should save: name a directory on a drive"},
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

// Turns one of our errors, which end with advice in brackets, into a finding.
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
  if (info.f_blocks == 0) {  // as in /proc
    return {Status::kFail, directory, "its file system holds no files of its users",
            "name a directory on a drive"};
  }
  return {Status::kWarn, directory, fmt::format("file system of unknown kind {:#x}", magic),
          "measure it: strata bench io --nvme " + shell_word(directory)};
}

DoctorLine check_space(const std::string& directory) {
  try {
    const uint64_t free = io::free_space(directory).bytes;
    const std::string text = format_bytes(static_cast<int64_t>(free)) + " free";
    if (free >= kLittleSpaceBytes) return {Status::kOk, directory, text, ""};
    return {Status::kWarn, directory, text,
            "training state takes 14 to 16 bytes a parameter; free space there"};
  } catch (const Error& error) {
    return failure(directory, error.what());
  }
}

// Writes or reads the block. Throws the error of the transfer.
void move_block(io::Channel& channel, io::Direction direction, const io::HugeMemory& memory) {
  io::Transfer transfer;
  transfer.direction = direction;
  transfer.bytes = kBlockBytes;
  transfer.data = memory.data();
  transfer.tag = 1;
  channel.submit(&transfer);
  while (!transfer.done) {
    if (channel.poll() == 0) channel.wait(0.1);
  }
  if (transfer.error) throw Error(*transfer.error);
}

// Writes and reads back a real volume of one block, by the same code as a run.
DoctorLine check_scratch(const std::string& directory, io::Backend backend) {
  try {
    const io::HugeMemory written(kBlockBytes);
    const io::HugeMemory read(kBlockBytes);
    for (uint64_t i = 0; i < kBlockBytes; ++i) {
      written.data()[i] = static_cast<std::byte>(i * 2654435761u >> 13);
    }
    io::Volume volume({.directories = {directory},
                       .bytes = kBlockBytes,
                       .owner = "strata doctor",
                       .zeros_deadline_s = kDeadlineS,
                       .allow_memory_filesystem = true});
    io::Channel channel(volume, {.backend = backend, .depth = 1, .deadline_s = kDeadlineS});
    move_block(channel, io::Direction::kWrite, written);
    move_block(channel, io::Direction::kRead, read);
    if (std::memcmp(written.data(), read.data(), kBlockBytes) != 0) {
      return {Status::kFail, directory, "scratch returns other bytes than were written",
              "use another drive"};
    }
    const io::ScratchFile& file = volume.files()[0];
    const std::string text = fmt::format("scratch works: a block was written and read back by {}",
                                         channel.backend_name());
    if (!file.direct) {
      return {Status::kWarn, directory,
              text + ", but without O_DIRECT: I/O goes through the page cache",
              "use ext4 or xfs on a local drive"};
    }
    return {Status::kOk, directory,
            fmt::format("{}, O_DIRECT aligned to {} bytes", text, file.alignment), ""};
  } catch (const Error& error) {
    return failure(directory, error.what());
  }
}

// Advice for a refusal of io_uring; `disabled` is the value of the sysctl, or empty.
std::string uring_fix(const std::string& refusal, const std::string& disabled) {
  std::string fix =
      "in a container allow io_uring_setup, io_uring_enter and io_uring_register in the seccomp "
      "profile";
  if (refusal.find("RLIMIT_MEMLOCK") != std::string::npos) fix = kMemoryLockFix;
  if (refusal.find("older than 5.11") != std::string::npos) fix = "run a kernel of 5.11 or later";
  if (disabled == "1" || disabled == "2") fix = "sysctl kernel.io_uring_disabled=0";
  return "threads are used instead, at more processor time; " + fix;
}

DoctorLine check_uring(const std::string& root) {
  const int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  io::RingOptions options;
  options.backend = io::Backend::kUring;
  options.files = {{fd, "/dev/null"}};
  DoctorLine line{Status::kOk, "io_uring", "available", ""};
  try {
    const io::Ring ring(options);
  } catch (const Error& error) {
    const std::string disabled = read_line(root + "/proc/sys/kernel/io_uring_disabled");
    line = {Status::kWarn, "io_uring",
            std::string(error.what()) +
                (disabled.empty() ? "" : ", kernel.io_uring_disabled = " + disabled),
            uring_fix(error.what(), disabled)};
  }
  if (fd >= 0) close(fd);
  return line;
}

}  // namespace

void check_storage(const std::vector<std::string>& directories, const std::string& root,
                   StorageCheck& check) {
  std::vector<DoctorLine>& lines = check.lines;
  const DoctorLine uring = check_uring(root);
  // When io_uring is refused, that is reported once, not for every directory.
  const io::Backend backend =
      uring.status == Status::kOk ? io::Backend::kUring : io::Backend::kThreads;
  for (const std::string& directory : directories) {
    lines.push_back(check_kind(directory));
    if (lines.back().status == Status::kFail) continue;
    lines.push_back(check_space(directory));
    if (lines.back().status == Status::kFail) continue;
    check.checking = directory;
    DoctorLine scratch = check_scratch(directory, backend);
    check.checking.clear();
    lines.push_back(std::move(scratch));
    for (DoctorLine& line : check_drives(directory, root)) lines.push_back(std::move(line));
  }
  lines.push_back(uring);
}

std::vector<DoctorLine> check_storage(const std::vector<std::string>& directories,
                                      const std::string& root) {
  StorageCheck check;
  check_storage(directories, root, check);
  return check.lines;
}

}  // namespace strata::cli
