// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/error.h"

// Files of model directories. Weights are read and written once a run, so blocking calls at an
// offset are enough, with hints that keep the drive busy between them.
namespace strata::model {

// An open file. The destructor closes it.
//
// Threads: read_at and write_at may be called from any thread; ranges that are written must be
// disjoint. Failure: Error that names path and offset: kConfig when the file cannot be opened,
// kDoesNotFit when the disk is full, otherwise kIo.
class File {
 public:
  File() = default;
  static File open_to_read(const std::string& path);
  // Creates a file with mode 0644; replaces an existing one.
  static File create(const std::string& path);
  // Opens the same file for O_DIRECT in whole pages. The result is not open when the file system
  // does not allow that.
  File open_direct() const;
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  bool is_open() const { return fd_ >= 0; }
  int64_t size() const;
  // A text that identifies the file and its version: it changes when the file is written to or
  // replaced, since it includes the change time, which no program can set.
  std::string identity() const;
  void read_at(int64_t offset, void* data, int64_t bytes) const;
  void write_at(int64_t offset, const void* data, int64_t bytes) const;
  // Reserves all blocks now, so that later writes cannot run out of space.
  void allocate(int64_t bytes) const;
  void sync() const;
  // Hints to the kernel to start reading the range. A failure has no effect.
  void will_read(int64_t offset, int64_t bytes) const;
  // Makes the kernel start to write dirty pages of the range.
  void start_writing(int64_t offset, int64_t bytes) const;
  // Waits until the range is written, and drops it from the page cache. sync() does not report an
  // error again that this call reported.
  void finish_writing(int64_t offset, int64_t bytes) const;
  const std::string& path() const { return path_; }
  int descriptor() const { return fd_; }

 private:
  void write_back(int64_t offset, int64_t bytes, unsigned flags) const;
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  int fd_ = -1;
  std::string path_;
};

// The error of a write that failed with this errno value.
Error write_error(const std::string& path, int64_t offset, int error);

// Syncs a directory, so that the names in it are durable.
void sync_directory(const std::string& path);

// Creates, writes and syncs a small file.
void write_file(const std::string& path, std::string_view contents);

// Whether anything exists at `path`; false when this user cannot see it.
bool is_there(const std::string& path);

// The nearest directory above `path`, or `path` itself, that exists.
std::string nearest_directory(const std::string& path);

// Throws Error (kConfig) unless this user may create `path` and its missing parents. Creates
// nothing.
void require_may_create(const std::string& path, const std::string& purpose);

// Throws Error (kConfig) when `path` is a directory that contains a folder other than `known`,
// because replacing the directory would delete that folder. Links to folders do not count.
void require_no_folder(const std::string& path, std::string_view known, const std::string& purpose);

// Throws Error (kDoesNotFit) unless the file system of the directory has `bytes` bytes free.
void require_free_space(const std::string& directory, int64_t bytes, const std::string& purpose);

}  // namespace strata::model
