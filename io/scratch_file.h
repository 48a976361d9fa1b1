// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/volume.h"

namespace strata::io {

// A directory held against other runs: `<directory>/<lock_name>` under flock, naming its holder.
// The kernel drops the lock when the process dies, so a file left by a dead run is taken over. Gone
// after release. Failure: construction throws Error(kConfig) naming the holder, or why the
// directory cannot be used.
class DirectoryLock {
 public:
  DirectoryLock(const std::string& directory, const std::string& lock_name,
                const std::string& owner);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  int directory_fd() const { return directory_fd_; }
  const std::string& directory() const { return directory_; }

 private:
  void close_all();

  std::string directory_;
  std::string lock_name_;
  int directory_fd_ = -1;
  int lock_fd_ = -1;
};

struct FreeSpace {
  uint64_t device = 0;
  uint64_t bytes = 0;   // without the blocks reserved for root, even if the process is root
  bool memory = false;  // tmpfs or ramfs
};
FreeSpace free_space(const DirectoryLock& lock);
FreeSpace free_space(const std::string& directory);  // whoever holds it

// The most scratch that fits the directories, striped evenly or by `weights`: the first file system
// that is full ends it. Several directories on one file system share its space.
int64_t free_bytes_of(const std::vector<std::string>& directories,
                      const std::vector<double>& weights = {});

struct ScratchRequest {
  uint64_t bytes = 0;
  uint32_t index = 0;  // of `count` files that the volume has in this directory
  uint32_t count = 1;
  bool direct = true;
  // Where fallocate is missing, zeros reserve the space: at most so many, else it is an error.
  uint64_t zeros_limit_bytes = ~uint64_t{0};
  double zeros_deadline_s = 600;  // of one request that writes some of them
  bool reserved = true;  // false: there the file is sparse, for a user who writes all of it first
  std::string
      leftover_name;  // used where O_TMPFILE is missing; a file of this name is a dead run's
};

// Creates a file of that size without a name, with every block reserved. Throws Error, leaves
// nothing. A drive that hangs for good while zeros are written ends the process: see Ring.
ScratchFile create_scratch(const DirectoryLock& lock, const ScratchRequest& request);

}  // namespace strata::io
