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

// Writes files with O_DIRECT, past the page cache; every byte may be written only once. Consecutive
// bytes are collected in blocks of 4 MiB, which are written while the next block fills. Parts of
// pages are kept until flush(), so that no page is written both directly and through the page
// cache.
//
// Threads: one at a time. Failure: Error as from File::write_at, from the call that notices it and
// every later one. Memory: `bytes` in huge pages, and less than 1 MiB for parts of pages.
class DirectWriter {
 public:
  // Returns null when none of the files allows O_DIRECT. `files` must outlive the writer.
  static std::unique_ptr<DirectWriter> open(const std::vector<const File*>& files, int64_t bytes);

  bool takes(const File& file) const { return index_of(targets_, file) < targets_.size(); }

  // Memory for up to `bytes` bytes of the file from `offset` on. The caller fills it, then calls
  // written() with the number of bytes filled.
  struct Room {
    std::byte* data = nullptr;
    int64_t bytes = 0;
  };
  Room room(const File& file, int64_t offset, int64_t bytes);
  void written(int64_t bytes);
  void write(const File& file, int64_t offset, const void* data, int64_t bytes);

  // Returns when the files have all bytes. File::sync must still make them durable.
  void flush();

 private:
  struct Block {
    size_t target = 0;
    int64_t page = 0;   // offset in the file where the block starts
    int64_t first = 0;  // the block holds bytes [first, end) of the file
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

  std::vector<Block> blocks_;  // elements never move
  Block* filling_ = nullptr;
  std::vector<Part> parts_;
  std::optional<Error> failure_;  // the first failure
  io::Ring ring_;                 // destroyed first: it waits for requests in the kernel
};

}  // namespace strata::model
