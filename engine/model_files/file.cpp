// SPDX-License-Identifier: Apache-2.0
#include "engine/model_files/file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "engine/base/blocking_call.h"
#include "engine/base/interrupted.h"
#include "engine/base/units.h"

namespace strata::model {
namespace {

namespace fs = std::filesystem;

// A full disk or a file over the size limit is kDoesNotFit, any other error of the disk kIo.
ErrorCode write_error_code(int error) {
  return error == ENOSPC || error == EDQUOT || error == EFBIG ? ErrorCode::kDoesNotFit
                                                              : ErrorCode::kIo;
}

}  // namespace

File File::open_to_read(const std::string& path) {
  const BlockingCall call("open", path);
  // Without O_NONBLOCK, opening a FIFO would wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw system_error(ErrorCode::kConfig, "cannot open: " + path, errno);
  File file(fd, path);
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw system_error(ErrorCode::kIo, "cannot stat: " + path, errno);
  if (!S_ISREG(info.st_mode)) {
    throw Error(ErrorCode::kConfig,
                "cannot open: " + path + ": it is not a regular file (give a file)");
  }
  return file;
}

File File::create(const std::string& path) {
  const BlockingCall call("create", path);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    throw system_error(ErrorCode::kIo, "cannot replace: " + path, errno);
  }
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) throw system_error(ErrorCode::kIo, "cannot create: " + path, errno);
  return File(fd, path);
}

// Opens the file by its descriptor, because another file may have its name by now.
File File::open_direct() const {
  struct statx info {};
  const bool known = ::syscall(SYS_statx, fd_, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
                     (info.stx_mask & STATX_DIOALIGN) != 0;
  const uint32_t multiple = std::max(info.stx_dio_offset_align, info.stx_dio_mem_align);
  if (known && (info.stx_dio_offset_align == 0 || multiple > kPageBytes)) return {};
  const int access = ::fcntl(fd_, F_GETFL) & O_ACCMODE;
  const std::string name = fmt::format("/proc/self/fd/{}", fd_);
  return File(::open(name.c_str(), access | O_DIRECT | O_CLOEXEC), path_);
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

int64_t File::size() const {
  const BlockingCall call("stat", path_);
  struct stat info {};
  if (::fstat(fd_, &info) != 0) throw system_error(ErrorCode::kIo, "cannot stat: " + path_, errno);
  return info.st_size;
}

std::string File::identity() const {
  const BlockingCall call("stat", path_);
  struct stat info {};
  if (::fstat(fd_, &info) != 0) throw system_error(ErrorCode::kIo, "cannot stat: " + path_, errno);
  return fmt::format("{} {} {} {}.{:09} {}.{:09}", info.st_dev, info.st_ino, info.st_size,
                     info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_ctim.tv_sec,
                     info.st_ctim.tv_nsec);
}

void File::read_at(int64_t offset, void* data, int64_t bytes) const {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = [&] {
      const BlockingCall call("read", path_);
      return ::pread(fd_, next, static_cast<size_t>(bytes), offset);
    }();
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw system_error(ErrorCode::kIo, fmt::format("cannot read: {} at byte {}", path_, offset),
                         errno);
    }
    if (got == 0) {
      throw Error(ErrorCode::kCorrupt,
                  fmt::format("cannot read: {} at byte {}: the file has become shorter "
                              "(start again with the whole file)",
                              path_, offset));
    }
    next += got;
    offset += got;
    bytes -= got;
  }
}

void File::write_at(int64_t offset, const void* data, int64_t bytes) const {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = [&] {
      const BlockingCall call("write", path_);
      return ::pwrite(fd_, next, static_cast<size_t>(bytes), offset);
    }();
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw write_error(path_, offset, errno);
    next += put;
    offset += put;
    bytes -= put;
  }
}

void File::allocate(int64_t bytes) const {
  if (bytes == 0) return;
  const BlockingCall call("reserve space", path_);
  int error = 0;
  do {
    error = ::posix_fallocate(fd_, 0, bytes);
  } while (error == EINTR);
  if (error != 0) {
    throw system_error(write_error_code(error),
                       fmt::format("cannot reserve {}: {}", format_bytes(bytes), path_), error,
                       "free space there, or write elsewhere");
  }
}

void File::sync() const {
  const BlockingCall call("sync", path_);
  if (uninterrupted([&] { return ::fsync(fd_); }) == 0) return;
  throw system_error(write_error_code(errno), "cannot sync: " + path_, errno);
}

void File::will_read(int64_t offset, int64_t bytes) const {
  const BlockingCall call("read", path_);
  ::posix_fadvise(fd_, offset, bytes, POSIX_FADV_WILLNEED);
}

// The kernel reports a failed write-back only once, here or by fsync. Where the call is missing,
// the later fsync reports it.
void File::write_back(int64_t offset, int64_t bytes, unsigned flags) const {
  const BlockingCall call("write", path_);
  if (uninterrupted([&] { return ::sync_file_range(fd_, offset, bytes, flags); }) == 0) return;
  if (errno == ENOSYS || errno == EINVAL || errno == ESPIPE) return;
  throw write_error(path_, offset, errno);
}

void File::start_writing(int64_t offset, int64_t bytes) const {
  write_back(offset, bytes, SYNC_FILE_RANGE_WRITE);
}

void File::finish_writing(int64_t offset, int64_t bytes) const {
  write_back(offset, bytes,
             SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  ::posix_fadvise(fd_, offset, bytes, POSIX_FADV_DONTNEED);
}

Error write_error(const std::string& path, int64_t offset, int error) {
  return system_error(write_error_code(error),
                      fmt::format("cannot write: {} at byte {}", path, offset), error);
}

void sync_directory(const std::string& path) {
  const BlockingCall call("sync", path);
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw system_error(ErrorCode::kIo, "cannot open: " + path, errno);
  const int result = uninterrupted([&] { return ::fsync(fd); });
  const int error = errno;
  ::close(fd);
  if (result != 0) throw system_error(ErrorCode::kIo, "cannot sync: " + path, error);
}

void write_file(const std::string& path, std::string_view contents) {
  const File file = File::create(path);
  file.write_at(0, contents.data(), static_cast<int64_t>(contents.size()));
  file.sync();
}

bool is_there(const std::string& path) {
  const BlockingCall call("look for", path);
  std::error_code error;
  return fs::exists(path, error);
}

std::string nearest_directory(const std::string& path) {
  const BlockingCall call("look for", path);
  std::error_code error;
  fs::path at = fs::absolute(path, error).lexically_normal();
  while (!fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  return at.string();
}

void require_may_create(const std::string& path, const std::string& purpose) {
  const std::string parent = nearest_directory(path);
  std::error_code error;
  const BlockingCall call("look for", parent);
  const bool is_directory = fs::is_directory(parent, error);
  if (is_directory && ::access(parent.c_str(), W_OK | X_OK) == 0) return;
  throw system_error(ErrorCode::kConfig,
                     "cannot create " + purpose + ": " + path + ": in " + parent,
                     is_directory ? errno : ENOTDIR, "give a path that this user may write");
}

void require_no_folder(const std::string& path, std::string_view known,
                       const std::string& purpose) {
  const BlockingCall call("list", path);
  if (!fs::is_directory(path)) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_symlink() || !entry.is_directory() || name == known) continue;
    throw Error(ErrorCode::kConfig,
                fmt::format("cannot write {}: {}: replacing it would delete the folder {} in it "
                            "(move that away, or give another path)",
                            purpose, path, name));
  }
}

void require_free_space(const std::string& directory, int64_t bytes, const std::string& purpose) {
  const BlockingCall call("ask for free space", directory);
  struct statvfs info {};
  if (::statvfs(directory.c_str(), &info) != 0) {
    throw system_error(ErrorCode::kIo, "cannot ask for free space: " + directory, errno);
  }
  const double free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  if (free >= static_cast<double>(bytes)) return;
  throw Error(ErrorCode::kDoesNotFit, fmt::format("cannot write {}: {}: it needs {}, and {} are "
                                                  "free (free space there, or write elsewhere)",
                                                  purpose, directory, format_bytes(bytes),
                                                  format_bytes(static_cast<int64_t>(free))));
}

}  // namespace strata::model
