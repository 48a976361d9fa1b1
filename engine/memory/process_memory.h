// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace strata::memory {

// What this process holds of host memory, from two sides: what the kernel counts, and what can be
// counted without it.
struct ProcessMemory {
  // By the kernel.
  int64_t resident_bytes = 0;
  int64_t resident_peak_bytes = 0;
  int64_t file_bytes = 0;                    // of resident_bytes: program, libraries, mapped files
  std::optional<int64_t> cgroup_peak_bytes;  // of all its processes, page cache included

  // By ourselves.
  int64_t heap_bytes = 0;   // what malloc took from the system, in all its arenas
  int64_t stack_bytes = 0;  // touched pages of all thread stacks
  int64_t thread_count = 0;

  // With arenas of so many bytes, which are present in full from the start.
  int64_t counted_bytes(int64_t arena_bytes) const {
    return arena_bytes + heap_bytes + stack_bytes + file_bytes;
  }
};

// Takes about a millisecond: for the start, the end and now and then, not for the hot path.
ProcessMemory read_process_memory();

// The touched bytes of the stacks in the text of /proc/PID/smaps: "[stack]", and anonymous mappings
// right behind a guard of at most 64 KiB, as threads have.
int64_t stack_bytes_of(const std::string& smaps);

}  // namespace strata::memory
