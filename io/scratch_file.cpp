// SPDX-License-Identifier: Apache-2.0
#include "io/scratch_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/stat.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>

#include "engine/base/blocking_call.h"
#include "engine/base/error.h"
#include "engine/base/interrupted.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "io/huge_memory.h"
#include "io/ring.h"
#include "io/transfer_error.h"

namespace strata::io {
namespace {

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "unknown host";
  return name;
}

std::string this_process() {
  return "pid " + std::to_string(getpid()) + " on " + host_name();
}

// The file's text as one printable line.
std::string read_holder(int fd) {
  char text[512];
  const ssize_t count = pread(fd, text, sizeof text, 0);
  std::string holder(text, count > 0 ? static_cast<size_t>(count) : 0);
  for (char& c : holder) {
    if (c < 0x20 || c > 0x7e) c = ' ';
  }
  while (!holder.empty() && holder.back() == ' ') holder.pop_back();
  return holder.empty() ? "another process" : holder;
}

// Whether the file is a lock file of ours, or empty. Any other file of that name belongs to the
// user.
bool is_lock(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink != 1) return false;
  char begin[4] = {};
  const ssize_t count = pread(fd, begin, sizeof begin, 0);
  return count == 0 || (count == sizeof begin && std::memcmp(begin, "pid ", sizeof begin) == 0);
}

bool is_full(int error) {
  return error == ENOSPC || error == EDQUOT;
}

Error no_space(const std::string& directory, uint64_t need, uint64_t free) {
  const auto text = [](uint64_t bytes) { return format_bytes(static_cast<int64_t>(bytes)); };
  if (free >= need) {
    return Error(ErrorCode::kDoesNotFit,
                 "reserve scratch: " + directory + ": needs " + text(need) + ", and of the " +
                     text(free) +
                     " free, the file system gives less because of a quota or its own needs (free "
                     "space there, or name another directory)");
  }
  return Error(ErrorCode::kDoesNotFit, "reserve scratch: " + directory + ": needs " + text(need) +
                                           ", free " + text(free) + ", missing " +
                                           text(need - free) +
                                           " (free space there, or name another directory)");
}

// Opens a file without a name. With O_TMPFILE it never has one. Otherwise it has one for a moment,
// which no other process uses, because we hold the directory's lock.
int open_nameless(const DirectoryLock& lock, const std::string& leftover_name, int extra_flags) {
  const BlockingCall call("create scratch in", lock.directory());
  const int flags = O_RDWR | O_CLOEXEC | extra_flags;
  int fd = openat(lock.directory_fd(), ".", flags | O_TMPFILE | O_EXCL, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return fd;
  if (unlinkat(lock.directory_fd(), leftover_name.c_str(), 0) == 0) {
    log(LogLevel::kInfo,
        "removed scratch of a dead run: " + lock.directory() + "/" + leftover_name);
  }
  fd = openat(lock.directory_fd(), leftover_name.c_str(), flags | O_CREAT | O_EXCL | O_NOFOLLOW,
              0600);
  if (fd >= 0 || errno != EEXIST) {
    const int saved = errno;
    unlinkat(lock.directory_fd(), leftover_name.c_str(), 0);
    errno = saved;
  }
  return fd;
}

int allocate(const ScratchFile& file, uint64_t bytes) {
  const BlockingCall call("reserve space", file.name);
  const auto call_once = [&] { return fallocate(file.fd, 0, 0, static_cast<off_t>(bytes)); };
  return uninterrupted(call_once) == 0 ? 0 : errno;
}

// Calls the kernel's statx, because the C library's struct lacks the fields for O_DIRECT.
struct statx stat_of(int fd) {
  struct statx result {};
  (void)syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_DIOALIGN, &result);
  return result;
}

std::string scratch_name(const ScratchRequest& request) {
  if (request.count == 1) return "scratch file";
  return "scratch file " + std::to_string(request.index + 1) + " of " +
         std::to_string(request.count);
}

// Turns O_DIRECT on where the file system has it. Without it, I/O is slower and fills the page
// cache.
void enable_direct(ScratchFile& file) {
  const struct statx info = stat_of(file.fd);
  const auto refuse = [&file](const std::string& why) {
    log(LogLevel::kWarning,
        "no O_DIRECT in " + file.directory + ", I/O goes through the page cache: " + why);
  };
  uint32_t alignment = 4096;
  if ((info.stx_mask & STATX_DIOALIGN) != 0) {
    if (info.stx_dio_offset_align == 0) return refuse("the file system does not support it");
    alignment = std::max(info.stx_dio_offset_align, info.stx_dio_mem_align);
    if (alignment > kPageBytes) {
      return refuse("it needs multiples of " + std::to_string(alignment) + " bytes");
    }
  }
  const int flags = fcntl(file.fd, F_GETFL);
  if (flags < 0 || fcntl(file.fd, F_SETFL, flags | O_DIRECT) != 0)
    return refuse(std::strerror(errno));
  file.direct = true;
  file.alignment = std::max(alignment, 512u);
}

// Reserves the space by writing zeros, where fallocate is missing. A ring writes them, so that a
// drive that hangs is an error; it uses threads, which work on every machine. Returns an errno
// value, or 0.
int fill_with_zeros(const ScratchFile& file, uint64_t bytes, double deadline_s) {
  constexpr uint64_t kRequestBytes = 1 << 20;
  constexpr uint32_t kDepth = 4;
  const HugeMemory zeros(kRequestBytes);
  Ring ring({.backend = Backend::kThreads,
             .depth = kDepth,
             .files = {{file.fd, file.name}},
             .deadline_s = deadline_s});
  std::array<RingRequest, kDepth> requests;
  std::array<RingRequest*, kDepth> free;
  for (size_t i = 0; i < kDepth; ++i) free[i] = &requests[i];
  size_t free_count = kDepth;
  std::array<RingRequest*, kDepth> finished;
  for (uint64_t at = 0; at < bytes || free_count < kDepth;) {
    for (; at < bytes && free_count > 0; --free_count) {
      RingRequest& request = *free[free_count - 1];
      request.direction = Direction::kWrite;
      request.offset = at;
      request.data = zeros.data();
      request.bytes = std::min(kRequestBytes, bytes - at);
      at += request.bytes;
      ring.submit(&request);
    }
    const size_t count = ring.poll(finished);
    if (count == 0) ring.wait(0.1);
    for (size_t i = 0; i < count; ++i) {
      const RingRequest& request = *finished[i];
      if (request.outcome == RingRequest::Outcome::kDeadline)
        throw request_error(request, file, request.offset);
      if (request.outcome == RingRequest::Outcome::kNoProgress) return ENOSPC;
      if (request.outcome != RingRequest::Outcome::kDone) return request.error_number;
      free[free_count++] = finished[i];
    }
  }
  // Bytes written with O_DIRECT have their blocks; others must be flushed from the page cache.
  return file.direct || uninterrupted([&] { return fdatasync(file.fd); }) == 0 ? 0 : errno;
}

// Returns an errno value, or 0. Throws when the zeros needed exceed their limit, or the drive
// hangs.
int reserve(ScratchFile& file, const ScratchRequest& request) {
  const int error = allocate(file, request.bytes);
  if (error != EOPNOTSUPP && error != ENOSYS) return error;
  if (!request.reserved) {
    return ftruncate(file.fd, static_cast<off_t>(request.bytes)) == 0 ? 0 : errno;
  }
  if (request.bytes > request.zeros_limit_bytes) {
    throw Error(ErrorCode::kConfig,
                "reserve scratch: " + file.directory + ": its file system has no fallocate, and " +
                    format_bytes(static_cast<int64_t>(request.bytes)) +
                    " of zeros exceed what is left of the limit on bytes written, " +
                    format_bytes(static_cast<int64_t>(request.zeros_limit_bytes)) +
                    " (raise --write-limit, or lower --size)");
  }
  file.zeroed_bytes = request.bytes;
  return fill_with_zeros(file, request.bytes, request.zeros_deadline_s);
}

FreeSpace free_space_at(int fd, const std::string& directory) {
  const BlockingCall call("look at", directory);
  struct stat info {};
  struct statvfs space {};
  struct statfs kind {};
  if (fstat(fd, &info) != 0 || fstatvfs(fd, &space) != 0 || fstatfs(fd, &kind) != 0) {
    throw system_error(ErrorCode::kIo, "read free space: " + directory, errno);
  }
  const bool memory = kind.f_type == TMPFS_MAGIC || kind.f_type == RAMFS_MAGIC;
  if (space.f_blocks == 0 && !memory) {  // as in /proc and /sys
    throw Error(ErrorCode::kConfig, "nvme: " + directory +
                                        ": its file system holds no files of its users (name a "
                                        "directory on a drive)");
  }
  return {.device = info.st_dev, .bytes = space.f_bavail * space.f_frsize, .memory = memory};
}

}  // namespace

DirectoryLock::DirectoryLock(const std::string& directory, const std::string& lock_name,
                             const std::string& owner)
    : directory_(directory), lock_name_(lock_name) {
  const BlockingCall call("lock", directory_);
  const auto foreign = [&] {
    close_all();
    return Error(ErrorCode::kConfig, "lock directory: " + directory + "/" + lock_name +
                                         ": exists and was not made by strata (move it away, or "
                                         "name another directory)");
  };
  const auto unusable = [&](const char* what, int error, const char* advice) {
    close_all();
    if (is_full(error)) {
      return system_error(ErrorCode::kDoesNotFit, std::string(what) + ": " + directory, error,
                          "free space there, or name another directory");
    }
    return system_error(ErrorCode::kConfig, std::string(what) + ": " + directory, error, advice);
  };
  directory_fd_ = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory_fd_ < 0) {
    throw unusable("open directory", errno,
                   "it must be an existing directory that this user may write");
  }
  for (;;) {
    lock_fd_ =
        openat(directory_fd_, lock_name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock_fd_ < 0 && (errno == ELOOP || errno == EISDIR)) throw foreign();
    if (lock_fd_ < 0)
      throw unusable("create scratch in", errno,
                     "name a directory of a drive that this user may write");
    if (flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      if (error != EWOULDBLOCK) throw unusable("lock directory", error, "use a local file system");
      const std::string holder = read_holder(lock_fd_);
      close_all();
      throw Error(
          ErrorCode::kConfig,
          "lock directory: " + directory + ": in use by " + holder +
              (holder.starts_with(this_process())
                   ? ", which is this process (close the store that has it, or name another "
                     "directory: each needs its own)"
                   : " (wait for it, or name another directory)"));
    }
    // The previous holder may have removed the file between our open and our lock.
    struct stat ours {};
    struct stat named {};
    if (fstat(lock_fd_, &ours) == 0 &&
        fstatat(directory_fd_, lock_name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        ours.st_ino == named.st_ino) {
      break;
    }
    close(lock_fd_);
  }
  if (!is_lock(lock_fd_)) throw foreign();
  const std::string text = this_process() + (owner.empty() ? "" : ": " + owner) + "\n";
  if (ftruncate(lock_fd_, 0) != 0 ||
      pwrite(lock_fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    const int error = errno;
    unlinkat(directory_fd_, lock_name.c_str(), 0);
    throw unusable("write the lock of scratch directory", error, "name another directory");
  }
}

DirectoryLock::~DirectoryLock() {
  const BlockingCall call("unlock", directory_);
  unlinkat(directory_fd_, lock_name_.c_str(), 0);  // while the lock is held, so it is ours
  close_all();
}

void DirectoryLock::close_all() {
  if (lock_fd_ >= 0) close(lock_fd_);
  if (directory_fd_ >= 0) close(directory_fd_);
  lock_fd_ = directory_fd_ = -1;
}

FreeSpace free_space(const DirectoryLock& lock) {
  return free_space_at(lock.directory_fd(), lock.directory());
}

FreeSpace free_space(const std::string& directory) {
  const BlockingCall call("look at", directory);
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    throw system_error(ErrorCode::kConfig, "nvme: " + directory, errno,
                       "give an existing directory on a drive");
  }
  try {
    const FreeSpace space = free_space_at(fd, directory);
    close(fd);
    return space;
  } catch (...) {
    close(fd);
    throw;
  }
}

namespace {

void require_different(const std::vector<std::string>& directories) {
  for (size_t i = 0; i < directories.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      const BlockingCall call("look at", directories[i]);
      std::error_code missing;  // reported elsewhere
      if (!std::filesystem::equivalent(directories[k], directories[i], missing)) continue;
      throw Error(ErrorCode::kConfig, "nvme: " + directories[k] + " and " + directories[i] +
                                          " are the same directory (name each once)");
    }
  }
}

}  // namespace

int64_t free_bytes_of(const std::vector<std::string>& directories,
                      const std::vector<double>& weights) {
  if (directories.empty()) return 0;
  require_different(directories);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  struct FileSystem {
    double free_bytes = 0;
    double share = 0;  // of the scratch
  };
  std::map<uint64_t, FileSystem> file_systems;
  for (size_t i = 0; i < directories.size(); ++i) {
    const FreeSpace space = free_space(directories[i]);
    FileSystem& one = file_systems[space.device];
    one.free_bytes = static_cast<double>(space.bytes);
    one.share += weights.empty() ? 1 / static_cast<double>(directories.size()) : weights[i] / sum;
  }
  double least = 0x1p62;
  for (const auto& [device, one] : file_systems) {
    least = std::min(least, one.free_bytes / one.share);
  }
  return static_cast<int64_t>(least);
}

ScratchFile create_scratch(const DirectoryLock& lock, const ScratchRequest& request) {
  ScratchFile file;
  file.directory = lock.directory();
  file.name = scratch_name(request) + " in " + lock.directory();
  file.bytes = request.bytes;
  file.fd = open_nameless(lock, request.leftover_name, 0);
  if (file.fd < 0) {
    const bool full = is_full(errno);
    throw system_error(full ? ErrorCode::kDoesNotFit : ErrorCode::kConfig,
                       "create scratch file: " + lock.directory(), errno,
                       full ? "free space there, or name another directory"
                            : "make the directory writable, or name another");
  }
  if (request.direct) enable_direct(file);
  int error = 0;
  try {
    error = reserve(file, request);
  } catch (...) {
    close(file.fd);
    throw;
  }
  if (error != 0) {
    close(file.fd);
    if (is_full(error)) throw no_space(lock.directory(), request.bytes, free_space(lock).bytes);
    if (error == EFBIG) {
      throw system_error(ErrorCode::kDoesNotFit,
                         "reserve scratch: " + lock.directory() + ": " +
                             format_bytes(static_cast<int64_t>(request.bytes)) + " in one file",
                         error, "raise ulimit -f, or spread over more directories");
    }
    throw system_error(ErrorCode::kIo, "reserve scratch: " + lock.directory(), error);
  }
  return file;
}

}  // namespace strata::io
