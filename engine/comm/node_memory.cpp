// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/node_memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace strata::comm {
namespace {

static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// A futex that several processes have mapped.
long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr,
                 0);
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kConfig, fmt::format("{}: {}", what, std::strerror(errno)));
}

}  // namespace

void Doorbell::ring() {
  rings_.fetch_add(1);
  if (sleepers_.load() > 0) futex(rings_, FUTEX_WAKE, INT_MAX, nullptr);
}

void Doorbell::sleep(uint32_t seen, double timeout_s) {
  const auto whole_s = static_cast<time_t>(timeout_s);
  const timespec timeout = {whole_s,
                            static_cast<long>((timeout_s - static_cast<double>(whole_s)) * 1e9)};
  sleepers_.fetch_add(1);
  if (rings_.load() == seen) futex(rings_, FUTEX_WAIT, seen, &timeout);
  sleepers_.fetch_sub(1);
}

int64_t NodeRing::write(const std::byte* from, int64_t bytes) {
  const uint64_t at = written_.load(std::memory_order_relaxed);
  const auto used = static_cast<int64_t>(at - read_.load(std::memory_order_acquire));
  const int64_t moved = std::min(bytes, kBytes - used);
  const auto place = static_cast<int64_t>(at % kBytes);
  const int64_t first = std::min(moved, kBytes - place);
  std::memcpy(data_ + place, from, static_cast<size_t>(first));
  std::memcpy(data_, from + first, static_cast<size_t>(moved - first));
  written_.store(at + static_cast<uint64_t>(moved), std::memory_order_release);
  return moved;
}

int64_t NodeRing::read(std::byte* to, int64_t bytes) {
  const uint64_t at = read_.load(std::memory_order_relaxed);
  const auto there = static_cast<int64_t>(written_.load(std::memory_order_acquire) - at);
  const int64_t moved = std::min(bytes, there);
  const auto place = static_cast<int64_t>(at % kBytes);
  const int64_t first = std::min(moved, kBytes - place);
  std::memcpy(to, data_ + place, static_cast<size_t>(first));
  std::memcpy(to + first, data_, static_cast<size_t>(moved - first));
  read_.store(at + static_cast<uint64_t>(moved), std::memory_order_release);
  return moved;
}

NodeSegment::NodeSegment(int rings) : bytes_(bytes_of(rings)) {
  STRATA_CHECK(rings >= 1);
  // Beyond this limit ftruncate() would end the process by a signal.
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(bytes_)) {
    errno = EFBIG;
    refuse("ulimit -f");
  }
  const int file = memfd_create("strata-ranks", MFD_CLOEXEC);
  if (file < 0) refuse("memfd_create");
  if (ftruncate(file, bytes_) != 0) {
    const int error = errno;
    close(file);
    errno = error;
    refuse("ftruncate");
  }
  map(file);
  if (getrandom(head().nonce, sizeof(head().nonce), 0) != sizeof(head().nonce)) {
    munmap(memory_, static_cast<size_t>(bytes_));
    close(file_);
    refuse("getrandom");
  }
}

NodeSegment::NodeSegment(const std::string& name) {
  int process = 0, descriptor = 0;
  unsigned long long nonce[2] = {};
  if (std::sscanf(name.c_str(), "%d %d %llx %llx", &process, &descriptor, &nonce[0], &nonce[1]) !=
      4) {
    errno = EINVAL;
    refuse(name);
  }
  const std::string path = fmt::format("/proc/{}/fd/{}", process, descriptor);
  // With process numbers of another namespace, it may be anything.
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) refuse(path);
  bytes_ = status.st_size;
  if (!S_ISREG(status.st_mode) || bytes_ < bytes_of(1)) {
    errno = EBADF;
    refuse(path);
  }
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) refuse(path);
  map(file);
  keep_alone();
  if (head().nonce[0] == nonce[0] && head().nonce[1] == nonce[1]) return;
  munmap(memory_, static_cast<size_t>(bytes_));
  errno = ESTALE;
  refuse(path);
}

// Takes the file over, also where it throws.
void NodeSegment::map(int file) {
  void* memory =
      mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    close(file);
    errno = error;
    refuse("mmap");
  }
  memory_ = static_cast<std::byte*>(memory);
  file_ = file;
}

NodeSegment::~NodeSegment() {
  keep_alone();
  munmap(memory_, static_cast<size_t>(bytes_));
}

std::string NodeSegment::name() const {
  return fmt::format("{} {} {:x} {:x}", getpid(), file_, head().nonce[0], head().nonce[1]);
}

void NodeSegment::keep_alone() {
  if (file_ >= 0) close(file_);
  file_ = -1;
}

}  // namespace strata::comm
