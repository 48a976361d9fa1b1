// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/error.h"

// Files of checkpoints: mode 0600, never opened through a symbolic link, read and written past the
// page cache.
namespace strata::checkpoint {

// Bytes moved at once, which is also the memory of a reader or writer beside its tables.
inline constexpr int64_t kCheckpointBufferBytes = int64_t{4} << 20;

struct FreeDeleter {
  void operator()(char* memory) const { std::free(memory); }
};
using PageBuffer = std::unique_ptr<char, FreeDeleter>;

// Allocates kCheckpointBufferBytes, aligned to a page.
PageBuffer make_page_buffer();

// One state file, read or written in pages.
//
// Threads: one at a time. Failure: Error that names path and offset: kDoesNotFit when the disk is
// full or a file size limit is reached, kCorrupt for a file that is too short, otherwise kIo. The
// file cannot be used after a failure.
class CheckpointFile {
 public:
  CheckpointFile() = default;
  // Creates a file and reserves all its blocks.
  static CheckpointFile create(const std::string& path, int64_t bytes);
  static CheckpointFile open(const std::string& path);
  ~CheckpointFile();
  CheckpointFile(CheckpointFile&& other) noexcept;
  CheckpointFile& operator=(CheckpointFile&& other) noexcept;

  bool is_open() const { return fd_ >= 0; }
  const std::string& path() const { return path_; }

  // Offset, bytes and memory address must be multiples of a page.
  void write(int64_t offset, const char* data, int64_t bytes);
  void read(int64_t offset, char* data, int64_t bytes);
  void sync();
  void close();

 private:
  CheckpointFile(int fd, std::string path, bool direct)
      : fd_(fd), direct_(direct), path_(std::move(path)) {}
  bool leave_direct();

  int fd_ = -1;
  bool direct_ = false;
  std::string path_;
};

// Writes a small file that is new or empty, and syncs it.
void write_small_file(const std::string& path, std::string_view text);

}  // namespace strata::checkpoint
