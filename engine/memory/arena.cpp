// SPDX-License-Identifier: Apache-2.0
#include "engine/memory/arena.h"

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/limits.h"

namespace strata::memory {
namespace {

constexpr int64_t kHugePageBytes = 2 * kMiB;

// Makes every page present. Kernels before 5.14 do not know the advice: then each page is written.
bool populate(std::byte* data, int64_t bytes) {
  if (madvise(data, static_cast<size_t>(bytes), MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;
  for (int64_t offset = 0; offset < bytes; offset += kPageBytes) {
    static_cast<volatile std::byte*>(data)[offset] = std::byte{0};
  }
  return true;
}

// In pieces, because many GiB take a while, and a thread takes no signal within one call.
void populate_all(std::byte* data, int64_t bytes) {
  constexpr int64_t kPieceBytes = 64 * kMiB;
  for (int64_t done = 0; done < bytes; done += kPieceBytes) {
    if (populate(data + done, std::min(kPieceBytes, bytes - done))) continue;
    throw system_error(ErrorCode::kDoesNotFit,
                       fmt::format("cannot commit {} of host memory", format_bytes(bytes)), errno,
                       "lower --host-memory");
  }
}

// Concerns pages that are not there yet. The kernel may take others all the same.
void prefer_node(void* data, size_t bytes, int node) {
  constexpr int kBits = 64;
  std::array<uint64_t, 16> nodes = {};
  if (node < 0 || node >= kBits * static_cast<int>(nodes.size())) return;
  nodes[static_cast<size_t>(node / kBits)] = uint64_t{1} << (node % kBits);
  // The kernel takes one bit less than it is told.
  syscall(SYS_mbind, data, bytes, MPOL_PREFERRED, nodes.data(), kBits * nodes.size() + 1, 0);
}

}  // namespace

void require_host_memory(int64_t bytes, const char* option) {
  const config::Limits limits = config::read_limits();
  if (bytes <= limits.usable_bytes()) return;
  throw Error(
      ErrorCode::kDoesNotFit,
      fmt::format("cannot allocate {} of host memory: {} leaves {} (lower {})", format_bytes(bytes),
                  limits.usable_reason(), format_bytes(limits.usable_bytes()), option));
}

Arena::Arena(int64_t bytes, int numa_node) : bytes_(round_up(bytes, kPageBytes)) {
  STRATA_CHECK(bytes > 0);
  require_host_memory(bytes_);
  // Adds room to align, and a guard of at least one huge page on each side.
  mapping_bytes_ = round_up(bytes_, kHugePageBytes) + 3 * kHugePageBytes;
  void* mapping = mmap(nullptr, static_cast<size_t>(mapping_bytes_), PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    throw system_error(ErrorCode::kDoesNotFit,
                       fmt::format("cannot map {} of host memory", format_bytes(bytes_)), errno,
                       "lower --host-memory");
  }
  mapping_ = static_cast<std::byte*>(mapping);
  const auto start = reinterpret_cast<uintptr_t>(mapping_) + kHugePageBytes;
  data_ = mapping_ + (round_up(static_cast<int64_t>(start), kHugePageBytes) -
                      static_cast<int64_t>(reinterpret_cast<uintptr_t>(mapping_)));
  const size_t length = static_cast<size_t>(bytes_);
  try {
    if (mprotect(data_, length, PROT_READ | PROT_WRITE) != 0) {
      throw system_error(ErrorCode::kDoesNotFit,
                         fmt::format("cannot commit {} of host memory", format_bytes(bytes_)),
                         errno, "lower --host-memory");
    }
    // Advice may be refused without harm.
    madvise(data_, length, MADV_HUGEPAGE);
    madvise(data_, length, MADV_DONTDUMP);
    prefer_node(data_, length, numa_node);
    populate_all(data_, bytes_);
  } catch (...) {
    release();
    throw;
  }
}

Arena::~Arena() {
  release();
}

Arena::Arena(Arena&& other) noexcept {
  *this = std::move(other);
}

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this == &other) return *this;
  release();
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  mapping_ = std::exchange(other.mapping_, nullptr);
  mapping_bytes_ = std::exchange(other.mapping_bytes_, 0);
  return *this;
}

std::span<std::byte> Arena::slot(int64_t offset, int64_t bytes) const {
  STRATA_CHECK(offset >= 0 && bytes >= 0 && offset <= bytes_ && bytes <= bytes_ - offset);
  return {data_ + offset, static_cast<size_t>(bytes)};
}

void Arena::release() {
  if (mapping_ != nullptr) munmap(mapping_, static_cast<size_t>(mapping_bytes_));
  mapping_ = nullptr;
  data_ = nullptr;
}

}  // namespace strata::memory
