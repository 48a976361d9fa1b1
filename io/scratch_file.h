// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/volume.h"

namespace strata::io {

// Locks a directory against other runs: holds a flock on `<directory>/<lock_name>`, which names the
// holder. The kernel drops the lock when the process dies, so the file of a dead run is taken over.
// The destructor removes the file. Failure: construction throws Error(kConfig) that names the
// holder, or why the directory cannot be used.
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
FreeSpace free_space(const std::string& directory);  // needs no lock

// The most scratch that fits the directories, striped evenly or by `weights`; the first file system
// that is full limits it. Directories on one file system share its space. Throws Error (kConfig)
// where two are the same directory.
int64_t free_bytes_of(const std::vector<std::string>& directories,
                      const std::vector<double>& weights = {});

struct ScratchRequest {
  uint64_t bytes = 0;
  uint32_t index = 0;  // of `count` files that the volume has in this directory
  uint32_t count = 1;
  bool direct = true;
  // The most zeros that may be written to reserve space where fallocate is missing; more are an
  // error.
  uint64_t zeros_limit_bytes = ~uint64_t{0};
  double zeros_deadline_s = 600;  // of one request that writes zeros
  bool reserved = true;  // false: without fallocate the file stays sparse; its user writes it first
  std::string leftover_name;  // used where O_TMPFILE is missing; such a file is left by a dead run
};

// Creates a file without a name and with every block reserved. On failure it throws Error and
// leaves nothing behind. When a drive hangs for good while zeros are written, it reports a hang:
// see Ring.
ScratchFile create_scratch(const DirectoryLock& lock, const ScratchRequest& request);

}  // namespace strata::io
