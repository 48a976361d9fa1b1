// SPDX-License-Identifier: Apache-2.0
#include "tests/train/file_calls.h"

#include <sys/types.h>

#include <cerrno>
#include <utility>

namespace strata::test {
namespace {

std::function<int(std::string_view)> before_calls;

bool may_go(std::string_view call) {
  const int cause = before_calls ? before_calls(call) : 0;
  if (cause != 0) errno = cause;
  return cause == 0;
}

}  // namespace

FileCalls::FileCalls(std::function<int(std::string_view)> before) {
  before_calls = std::move(before);
}

FileCalls::~FileCalls() {
  before_calls = nullptr;
}

}  // namespace strata::test

// The linker puts these in the place of the C library's (--wrap).
extern "C" ssize_t __real_pread(int fd, void* data, size_t bytes, off_t offset);
extern "C" ssize_t __real_pwrite(int fd, const void* data, size_t bytes, off_t offset);
extern "C" int __real_fsync(int fd);
extern "C" ssize_t __wrap_pread(int fd, void* data, size_t bytes, off_t offset);
extern "C" ssize_t __wrap_pwrite(int fd, const void* data, size_t bytes, off_t offset);
extern "C" int __wrap_fsync(int fd);

ssize_t __wrap_pread(int fd, void* data, size_t bytes, off_t offset) {
  return strata::test::may_go("pread") ? __real_pread(fd, data, bytes, offset) : -1;
}

ssize_t __wrap_pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  return strata::test::may_go("pwrite") ? __real_pwrite(fd, data, bytes, offset) : -1;
}

int __wrap_fsync(int fd) {
  return strata::test::may_go("fsync") ? __real_fsync(fd) : -1;
}
