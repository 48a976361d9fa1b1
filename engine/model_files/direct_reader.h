// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/model_files/direct_files.h"
#include "engine/model_files/file.h"
#include "io/huge_memory.h"
#include "io/ring.h"

namespace strata::model {

// Reads ranges of files ahead with O_DIRECT, past the page cache, in the order in which they were
// started.
//
// Guarantees: get() returns only bytes that were read completely. A range that failed is not found,
// so the caller reads it through the page cache, which reports the error. Threads: one at a time;
// with io_uring the reader has no thread of its own. Failure: open() throws Error (kDoesNotFit).
// Memory: `bytes`, in huge pages.
class DirectReader {
 public:
  // Returns null when none of the files allows O_DIRECT. `files` must outlive the reader.
  static std::unique_ptr<DirectReader> open(const std::vector<const File*>& files, int64_t bytes);

  // How many bytes of [offset, offset + bytes) one request would read; 0: read them through the
  // page cache. The last bytes of a file that do not fill a page are never read here.
  int64_t reach_of(const File& file, int64_t offset, int64_t bytes) const;
  // Starts to read a range that fits one request by reach_of(), for a group. Returns false when
  // there is no room.
  bool start(const File& file, int64_t offset, int64_t bytes, int64_t group);

  // If the byte at `offset` is among the ranges, drops everything before it, which frees room even
  // before that byte arrives. Memory from an earlier get() becomes invalid.
  void skip_to(const File& file, int64_t offset);
  // The bytes from `offset` on that were read, as far as they are contiguous; empty if there are
  // none. Waits for them and skips to them.
  struct Found {
    const std::byte* data = nullptr;
    int64_t bytes = 0;
  };
  Found get(const File& file, int64_t offset);
  bool holds(const File& file, int64_t offset) const;
  size_t ranges() const { return blocks_.size(); }
  void drop_before(int64_t group);
  bool is_broken() const { return broken_; }

 private:
  struct Block {
    const File* file = nullptr;
    int64_t offset = 0;
    int64_t bytes = 0;
    int64_t place = 0;       // offset in the buffer of the page that holds `offset`
    int64_t room_bytes = 0;  // whole pages
    int64_t group = 0;
    bool done = false;
    io::RingRequest request;
    bool covers(const File& other, int64_t at) const {
      return file == &other && at >= offset && at < offset + bytes;
    }
  };
  DirectReader(std::vector<DirectFile> sources, int64_t bytes);
  int64_t take_room(int64_t bytes) const;
  void wait_for(const Block& block);
  void drop_front();

  // Constant after construction
  const std::vector<DirectFile> sources_;
  const io::HugeMemory buffer_;

  std::deque<Block> blocks_;  // oldest first; elements never move
  bool broken_ = false;       // after a failure nothing more is started
  io::Ring ring_;             // destroyed first: it waits for requests in the kernel
};

}  // namespace strata::model
