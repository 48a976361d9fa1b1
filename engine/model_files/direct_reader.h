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

// Ranges of files on their way into memory by O_DIRECT, past the page cache, in the order in which
// they were asked for.
//
// Guarantees: get() returns bytes that were read, whole; a range that failed is not there, so the
// caller reads it the ordinary way, which says what is wrong. Threads: one at a time; the kernel
// moves the bytes, so there is none of its own where it has io_uring. Failure: open() throws Error
// (kDoesNotFit). Memory: `bytes`, in huge pages.
class DirectReader {
 public:
  // Null where none of the files can be read so. `files` must outlive it.
  static std::unique_ptr<DirectReader> open(const std::vector<const File*>& files, int64_t bytes);

  // How much of [offset, offset + bytes) one request would bring; 0: read it the ordinary way. The
  // last bytes of a file that fill no page are not read so.
  int64_t reach_of(const File& file, int64_t offset, int64_t bytes) const;
  // Starts to read a range of which reach_of() says that one request brings it. False: no room.
  bool start(const File& file, int64_t offset, int64_t bytes);

  // Drops all that was asked for before the byte at `offset`, if that was asked for: there is room
  // then, also before the byte has come. Memory of an earlier get() is not to be used any more.
  void skip_to(const File& file, int64_t offset);
  // The byte at `offset`, if it was read, and how many there are from it on; waits for them, and
  // skips to them.
  struct Found {
    const std::byte* data = nullptr;
    int64_t bytes = 0;
  };
  Found get(const File& file, int64_t offset);
  bool holds(const File& file, int64_t offset) const;
  size_t ranges() const { return blocks_.size(); }
  int64_t unused_bytes() const { return unused_bytes_; }  // read, and dropped before any get()

 private:
  struct Block {
    const File* file = nullptr;
    int64_t offset = 0;
    int64_t bytes = 0;
    int64_t place = 0;       // in the buffer, of the page that holds `offset`
    int64_t room_bytes = 0;  // whole pages
    bool done = false;
    bool used = false;
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

  std::deque<Block> blocks_;  // oldest first; addresses last
  bool broken_ = false;       // after a failure nothing more is started
  int64_t unused_bytes_ = 0;
  io::Ring ring_;  // destroyed first: it waits for what the kernel has
};

}  // namespace strata::model
