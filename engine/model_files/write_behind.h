// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>

#include "engine/model_files/file.h"

namespace strata::model {

// Makes the drive write ranges of files while the callers go on. Writing starts at once, and when
// more than a window of bytes is being written, it waits for the oldest range. So a large export
// neither fills memory with dirty pages nor leaves the drive idle until the last fsync.
//
// Threads: any. Failure: an Error of File, thrown once, when the drive refused a write. `file` must
// live until drain().
class WriteBehind {
 public:
  void written(const File& file, int64_t offset, int64_t bytes);
  void drain();

 private:
  struct Range {
    const File* file;
    int64_t offset;
    int64_t bytes;
  };
  bool take_oldest(int64_t window, Range& range);

  std::mutex mu_;
  // Guarded by mu_
  std::deque<Range> ranges_;
  int64_t bytes_ = 0;
};

}  // namespace strata::model
