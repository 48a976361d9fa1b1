// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace strata::memory {

// Host memory of this process, counted by the kernel and by ourselves.
struct ProcessMemory {
  // Counted by the kernel.
  int64_t resident_bytes = 0;
  int64_t resident_peak_bytes = 0;
  int64_t file_bytes = 0;  // of resident_bytes: program, libraries, mapped files

  // Counted by ourselves.
  int64_t heap_bytes = 0;   // taken by malloc from the system, in all its arenas
  int64_t stack_bytes = 0;  // touched pages of all thread stacks

  // The sum, with arenas of `arena_bytes`, which are resident in full from the start.
  int64_t counted_bytes(int64_t arena_bytes) const {
    return arena_bytes + heap_bytes + stack_bytes + file_bytes;
  }
};

// Takes about a millisecond; not for the hot path.
ProcessMemory read_process_memory();

// The touched bytes of all stacks in the text of /proc/PID/smaps: the mapping "[stack]", and
// anonymous mappings right behind a guard of at most 64 KiB, which are stacks of threads.
int64_t stack_bytes_of(const std::string& smaps);

}  // namespace strata::memory
