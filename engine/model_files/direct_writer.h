// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/model_files/direct_files.h"
#include "engine/model_files/file.h"
#include "io/huge_memory.h"
#include "io/ring.h"

namespace strata::model {

// Writes files of which every byte is written once, by O_DIRECT, past the page cache: what follows
// what was written last gathers in blocks of 4 MiB that are written while the next one fills. A
// page of which only a part is written in a row is kept until flush(), so that no page is written
// in both ways.
//
// Threads: one at a time. Failure: Error as of File::write_at, from the call that notices it and
// every later one. Memory: `bytes` in huge pages, and less than 1 MiB of parts
// of pages.
class DirectWriter {
 public:
  // Null where none of the files can be written so. `files` must outlive it.
  static std::unique_ptr<DirectWriter> open(const std::vector<const File*>& files, int64_t bytes);

  bool takes(const File& file) const { return index_of(targets_, file) < targets_.size(); }

  // Where bytes from `offset` on may be put before written() says how many were: up to `bytes`.
  struct Room {
    std::byte* data = nullptr;
    int64_t bytes = 0;
  };
  Room room(const File& file, int64_t offset, int64_t bytes);
  void written(int64_t bytes);
  void write(const File& file, int64_t offset, const void* data, int64_t bytes);

  // Returns when the files have it all, short of File::sync.
  void flush();

 private:
  struct Block {
    size_t target = 0;
    int64_t page = 0;   // in the file, where the block starts
    int64_t first = 0;  // what it holds of the file
    int64_t end = 0;
    std::byte* data = nullptr;
    bool in_flight = false;
    io::RingRequest request;
  };
  struct Part {
    size_t target = 0;
    int64_t offset = 0;
    std::string bytes;
  };
  DirectWriter(std::vector<DirectFile> targets, int64_t bytes);
  Block& free_block();
  void close_block();
  void keep(const Block& block, int64_t first, int64_t end);
  void wait_for_some();
  void settle(const io::RingRequest& request);
  void write_parts();

  // Constant after construction
  const std::vector<DirectFile> targets_;
  const io::HugeMemory buffer_;

  std::vector<Block> blocks_;  // addresses last
  Block* filling_ = nullptr;
  std::vector<Part> parts_;
  std::optional<Error> failure_;  // the first
  io::Ring ring_;                 // destroyed first: it waits for what the kernel has
};

}  // namespace strata::model
