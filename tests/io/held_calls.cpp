// SPDX-License-Identifier: Apache-2.0
#include "held_calls.h"

#include <sys/types.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace strata::io {
namespace {

struct Gate {
  std::mutex mu;
  std::condition_variable opened;
  int fd = -1;  // -1: of no file
  bool open = true;
  size_t most_bytes = ~size_t{0};
  uint64_t begun = 0;
};
Gate gate;
std::function<void()> on_flock;

// How many of `bytes` may be moved now.
size_t pass(int fd, size_t bytes) {
  std::unique_lock lock(gate.mu);
  if (fd != gate.fd) return bytes;
  ++gate.begun;
  gate.opened.wait(lock, [] { return gate.open; });
  return std::min(bytes, gate.most_bytes);
}

void set_gate(int fd, bool open, size_t most_bytes) {
  {
    const std::lock_guard lock(gate.mu);
    gate.fd = fd;
    gate.open = open;
    gate.most_bytes = most_bytes;
  }
  gate.opened.notify_all();
}

}  // namespace

HeldCalls::HeldCalls(int fd) {
  set_gate(fd, false, ~size_t{0});
  const std::lock_guard lock(gate.mu);
  gate.begun = 0;
}

HeldCalls::~HeldCalls() {
  set_gate(-1, true, ~size_t{0});
}

uint64_t HeldCalls::begun() const {
  const std::lock_guard lock(gate.mu);
  return gate.begun;
}

void HeldCalls::release(size_t most_bytes) {
  set_gate(gate.fd, true, most_bytes);
}

void before_next_flock(std::function<void()> action) {
  on_flock = std::move(action);
}

}  // namespace strata::io

// The linker puts these in the place of the C library's (--wrap).
extern "C" ssize_t __real_pread(int fd, void* data, size_t bytes, off_t offset);
extern "C" ssize_t __real_pwrite(int fd, const void* data, size_t bytes, off_t offset);
extern "C" int __real_flock(int fd, int operation);
extern "C" ssize_t __wrap_pread(int fd, void* data, size_t bytes, off_t offset);
extern "C" ssize_t __wrap_pwrite(int fd, const void* data, size_t bytes, off_t offset);
extern "C" int __wrap_flock(int fd, int operation);

ssize_t __wrap_pread(int fd, void* data, size_t bytes, off_t offset) {
  return __real_pread(fd, data, strata::io::pass(fd, bytes), offset);
}

ssize_t __wrap_pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  return __real_pwrite(fd, data, strata::io::pass(fd, bytes), offset);
}

int __wrap_flock(int fd, int operation) {
  if (const auto action = std::exchange(strata::io::on_flock, nullptr)) action();
  return __real_flock(fd, operation);
}
