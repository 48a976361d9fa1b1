// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/checkpoint_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "engine/base/blocking_call.h"
#include "engine/base/check.h"
#include "engine/base/interrupted.h"
#include "engine/base/units.h"

namespace strata::checkpoint {
namespace {

constexpr int kReadTries = 3;  // a second try may succeed

ErrorCode code_of(int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return full ? ErrorCode::kDoesNotFit : ErrorCode::kIo;
}

Error write_error(const std::string& path, int64_t offset, int error) {
  return system_error(code_of(error), fmt::format("cannot write: {} at byte {}", path, offset),
                      error);
}

// Opens a file with O_DIRECT if the file system has it.
int open_direct(const std::string& path, int flags, bool* direct) {
  const BlockingCall call((flags & O_CREAT) != 0 ? "create" : "open", path);
  *direct = true;
  const int fd = ::open(path.c_str(), flags | O_DIRECT, 0600);
  if (fd >= 0 || errno != EINVAL) return fd;
  *direct = false;
  // The failed call may have created the file.
  return ::open(path.c_str(), flags & ~O_EXCL, 0600);
}

int reserve(int fd, const std::string& path, int64_t bytes) {
  const BlockingCall call("reserve space", path);
  int result = uninterrupted([&] { return ::fallocate(fd, 0, 0, bytes); }) == 0 ? 0 : errno;
  // Without fallocate, only the size is set, and space may run out later.
  if (result == EOPNOTSUPP || result == ENOSYS) result = ::ftruncate(fd, bytes) == 0 ? 0 : errno;
  return result;
}

bool is_paged(int64_t offset, const char* data, int64_t bytes) {
  return offset % kPageBytes == 0 && bytes % kPageBytes == 0 &&
         reinterpret_cast<uintptr_t>(data) % kPageBytes == 0;
}

// Writes bytes in the page cache to disk and drops them from memory.
int push_out(int fd, int64_t offset, int64_t bytes) {
  constexpr unsigned kAll =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  if (::sync_file_range(fd, offset, bytes, kAll) != 0 && errno != EINVAL && errno != ENOSYS) {
    return errno;
  }
  (void)::posix_fadvise(fd, offset, bytes, POSIX_FADV_DONTNEED);  // advice only
  return 0;
}

}  // namespace

PageBuffer make_page_buffer() {
  PageBuffer buffer(static_cast<char*>(std::aligned_alloc(kPageBytes, kCheckpointBufferBytes)));
  if (!buffer)
    throw Error(ErrorCode::kDoesNotFit,
                "cannot allocate: 4 MiB: out of memory (free memory, or lower --host-memory)");
  return buffer;
}

CheckpointFile CheckpointFile::create(const std::string& path, int64_t bytes) {
  bool direct = false;
  const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const int fd = open_direct(path, flags, &direct);
  if (fd < 0) throw system_error(code_of(errno), "cannot create: " + path, errno);
  CheckpointFile file(fd, path, direct);
  const int error = bytes > 0 ? reserve(fd, path, bytes) : 0;
  if (error == 0) return file;
  ::unlink(path.c_str());
  throw system_error(code_of(error),
                     fmt::format("cannot reserve {}: {}", format_bytes(bytes), path), error);
}

CheckpointFile CheckpointFile::open(const std::string& path) {
  bool direct = false;
  // Without O_NONBLOCK, opening a FIFO would wait for a writer.
  const int fd = open_direct(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, &direct);
  if (fd < 0) throw system_error(ErrorCode::kIo, "cannot open: " + path, errno);
  CheckpointFile file(fd, path, direct);
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw system_error(ErrorCode::kIo, "cannot stat: " + path, errno);
  if (!S_ISREG(info.st_mode)) {
    throw Error(ErrorCode::kCorrupt,
                "cannot open: " + path + ": it is not a regular file (use another checkpoint)");
  }
  return file;
}

CheckpointFile::~CheckpointFile() {
  if (fd_ >= 0) ::close(fd_);
}

CheckpointFile::CheckpointFile(CheckpointFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), direct_(other.direct_), path_(std::move(other.path_)) {}

CheckpointFile& CheckpointFile::operator=(CheckpointFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(direct_, other.direct_);
  std::swap(path_, other.path_);
  return *this;
}

// Turns O_DIRECT off, because some file systems accept the flag but need larger multiples than
// pages. A call that fails with EINVAL has moved no byte.
bool CheckpointFile::leave_direct() {
  if (!direct_) return false;
  const int flags = ::fcntl(fd_, F_GETFL);
  if (flags < 0 || ::fcntl(fd_, F_SETFL, flags & ~O_DIRECT) != 0) return false;
  direct_ = false;
  return true;
}

void CheckpointFile::write(int64_t offset, const char* data, int64_t bytes) {
  STRATA_CHECK(is_paged(offset, data, bytes));
  const BlockingCall call("write", path_);
  const int64_t begin = offset;
  const int64_t end = offset + bytes;
  while (offset < end) {
    const ssize_t put =
        ::pwrite(fd_, data + (offset - begin), static_cast<size_t>(end - offset), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EINVAL && leave_direct()) continue;
    if (put < 0) throw write_error(path_, offset, errno);
    // The rest must be whole pages again.
    const int64_t pages = offset + put == end ? put : put / kPageBytes * kPageBytes;
    if (pages == 0) throw write_error(path_, offset, ENOSPC);
    offset += pages;
  }
  if (direct_) return;
  const int error = push_out(fd_, begin, bytes);
  if (error != 0) throw write_error(path_, begin, error);
}

void CheckpointFile::read(int64_t offset, char* data, int64_t bytes) {
  STRATA_CHECK(is_paged(offset, data, bytes));
  const BlockingCall call("read", path_);
  const int64_t begin = offset;
  const int64_t end = offset + bytes;
  int tries = 0;
  while (offset < end) {
    const ssize_t got =
        ::pread(fd_, data + (offset - begin), static_cast<size_t>(end - offset), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EINVAL && leave_direct()) continue;
    if (got < 0 && errno == EIO && ++tries < kReadTries) continue;
    if (got < 0) {
      throw system_error(ErrorCode::kIo, fmt::format("cannot read: {} at byte {}", path_, offset),
                         errno);
    }
    const int64_t pages = offset + got == end ? got : got / kPageBytes * kPageBytes;
    if (pages == 0) {
      throw Error(ErrorCode::kCorrupt,
                  fmt::format("cannot read: {} at byte {}: the file is too short (use another "
                              "checkpoint)",
                              path_, offset));
    }
    offset += pages;
  }
  if (!direct_) (void)::posix_fadvise(fd_, begin, bytes, POSIX_FADV_DONTNEED);  // advice only
}

void CheckpointFile::sync() {
  const BlockingCall call("sync", path_);
  if (uninterrupted([&] { return ::fdatasync(fd_); }) != 0) {
    throw system_error(code_of(errno), "cannot sync: " + path_, errno);
  }
}

void CheckpointFile::close() {
  const BlockingCall call("close", path_);
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void write_small_file(const std::string& path, std::string_view text) {
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
  std::optional<BlockingCall> call;
  call.emplace("write", path);
  const int fd = ::open(path.c_str(), flags, 0600);
  if (fd < 0) throw system_error(code_of(errno), "cannot create: " + path, errno);
  int error = 0;
  for (size_t at = 0; at < text.size() && error == 0;) {
    const ssize_t put = ::write(fd, text.data() + at, text.size() - at);
    if (put > 0) at += static_cast<size_t>(put);
    if (put == 0) error = ENOSPC;
    if (put < 0 && errno != EINTR) error = errno;
  }
  call.emplace("sync", path);
  if (error == 0 && uninterrupted([&] { return ::fsync(fd); }) != 0) error = errno;
  ::close(fd);
  if (error == 0) return;
  ::unlink(path.c_str());
  throw write_error(path, 0, error);
}

}  // namespace strata::checkpoint
