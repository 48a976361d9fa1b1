// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace strata::memory {

// Throws Error{kDoesNotFit} where the limits of the system leave less host memory than `bytes`.
void require_host_memory(int64_t bytes);

// One block of host memory, allocated once and handed out as slots at planned offsets.
//
// Guarantees: aligned to 2 MiB; every page is present and zero when the constructor returns, so
// nothing is paged in later and no step meets a surprise; memory that cannot be touched lies before
// and after it, so a run over its end faults at once; left out of core dumps. Threads: the
// accessors may be called from any; who may write a slot when is the plan's business. Failure:
// construction throws Error (kDoesNotFit) before anything is touched where the limits of the system
// are smaller; beyond a cgroup's limit the kernel would kill the process instead.
class Arena {
 public:
  Arena() = default;
  explicit Arena(int64_t bytes);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  int64_t bytes() const { return bytes_; }
  std::byte* data() const { return data_; }

  // The bytes [offset, offset + bytes); both must lie inside.
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
