// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace strata::config {

// What the system lets this process use, read before any large allocation. A limit that is absent
// or cannot be read is nullopt.
struct Limits {
  int64_t cores = 1;  // that this process may use, by affinity and cgroup quota

  int64_t memory_total_bytes = 0;      // of the machine
  int64_t memory_available_bytes = 0;  // of the machine, as the kernel estimates it

  // The cgroup with the least memory left, of this process's cgroup and those above it. Beyond its
  // limit the kernel kills the process; no allocation fails before that.
  std::optional<int64_t> cgroup_limit_bytes;
  std::optional<int64_t> cgroup_free_bytes;  // limit - use; reclaimable page cache counts as free
  std::string cgroup_path;

  std::optional<int64_t> memlock_bytes;        // RLIMIT_MEMLOCK
  std::optional<int64_t> address_space_bytes;  // RLIMIT_AS
  std::optional<int64_t> file_bytes;           // RLIMIT_FSIZE

  // The smallest of the memory limits, and its name: "cgroup memory limit".
  int64_t usable_bytes() const;
  std::string usable_reason() const;
};

// Never throws: a limit that cannot be read counts as no limit. Tests set `root`, which is put
// before /proc and /sys.
Limits read_limits(const std::string& root = "");

}  // namespace strata::config
