// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace strata::memory {

// Throws Error{kDoesNotFit} when the limits of the system leave less host memory than `bytes`;
// `option` is the budget that they come out of, for the message.
void require_host_memory(int64_t bytes, const char* option = "--host-memory");

// One block of host memory, allocated once and handed out as slots at planned offsets.
//
// Guarantees: aligned to 2 MiB; every page is present and zero when the constructor returns, so no
// page fault delays a step; inaccessible memory lies before and after the block, so an overrun
// faults at once; left out of core dumps. Threads: any thread may call the accessors; the plan
// orders accesses to a slot. Failure: the constructor throws Error (kDoesNotFit) before it touches
// memory when the limits of the system are too small, because beyond a cgroup's limit the kernel
// would kill the process.
class Arena {
 public:
  Arena() = default;
  // Pages come from NUMA node `numa_node` as long as that has some, unless it is negative or
  // unknown to the system.
  explicit Arena(int64_t bytes, int numa_node = -1);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  int64_t bytes() const { return bytes_; }
  std::byte* data() const { return data_; }

  // The bytes [offset, offset + bytes), which must lie inside the arena.
  std::span<std::byte> slot(int64_t offset, int64_t bytes) const;

 private:
  void release();

  // Constant after construction
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  std::byte* mapping_ = nullptr;
  int64_t mapping_bytes_ = 0;
};

}  // namespace strata::memory
