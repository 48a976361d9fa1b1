// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace strata::config {

// What the system lets this process use, read before anything is allocated. A limit that is absent
// or cannot be read is nullopt.
struct Limits {
  int64_t cores = 1;  // this process may run on, by affinity and cgroup quota

  int64_t memory_total_bytes = 0;      // of the machine
  int64_t memory_available_bytes = 0;  // of the machine, as the kernel estimates it

  // Of this process's cgroup and those above it, the one with the least memory left. Beyond its
  // limit the kernel kills the process; no allocation fails before.
  std::optional<int64_t> cgroup_limit_bytes;
  std::optional<int64_t>
      cgroup_free_bytes;  // limit less use; page cache that can go counts as free
  std::string cgroup_path;

  std::optional<int64_t> memlock_bytes;        // RLIMIT_MEMLOCK
  std::optional<int64_t> address_space_bytes;  // RLIMIT_AS

  // The least of all that bounds memory, and the words for what it is: "cgroup memory limit".
  int64_t usable_bytes() const;
  std::string usable_reason() const;
};

// `root` is put before /proc and /sys; tests give a directory. Never throws: what cannot be read
// counts as no limit.
Limits read_limits(const std::string& root = "");

// Where the kernel counts this process's memory: the directory of its cgroup, or of the nearest one
// above it that can be seen. Empty where none counts memory.
std::string memory_cgroup(const std::string& root = "");

}  // namespace strata::config
