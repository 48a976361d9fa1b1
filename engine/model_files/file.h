// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/error.h"

// Files of model directories: weights are read and written here once a run, so a blocking call at
// an offset is enough, with hints that keep the drive busy meanwhile.
namespace strata::model {

// An open file; closed with it.
//
// Threads: read_at and write_at may be called from any thread; ranges that are written are
// disjoint. Failure: Error (kConfig where the file cannot be opened, else kIo) naming path and
// offset.
class File {
 public:
  File() = default;
  static File open_to_read(const std::string& path);
  // A new file, or one that replaces a leftover; 0644.
  static File create(const std::string& path);
  // The same file again, for O_DIRECT in whole pages; not open where that cannot be had.
  File open_direct() const;
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  bool is_open() const { return fd_ >= 0; }
  int64_t size() const;
  // Which file it is, and of which time: another text once it is written to or replaced. The
  // kernel keeps the last of its times, which no program can set.
  std::string identity() const;
  void read_at(int64_t offset, void* data, int64_t bytes) const;
  void write_at(int64_t offset, const void* data, int64_t bytes) const;
  // Reserves all blocks now, so that later writes cannot run out of space.
  void allocate(int64_t bytes) const;
  void sync() const;
  // A hint, whose failure changes nothing: the kernel starts to read.
  void will_read(int64_t offset, int64_t bytes) const;
  // The kernel starts to write what is dirty.
  void start_writing(int64_t offset, int64_t bytes) const;
  // Waits until the range is written, and drops it from the page cache. An error that this reports
  // is not reported by sync() again.
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

// fsync of a directory, so that names in it last.
void sync_directory(const std::string& path);

// Creates, writes and syncs a small file.
void write_file(const std::string& path, std::string_view contents);

// Whether something of that name is there; false where that cannot be seen.
bool is_there(const std::string& path);

// The nearest directory above `path`, or `path` itself, that exists.
std::string nearest_directory(const std::string& path);

// Throws Error (kConfig) unless this user may create `path`, whose parents need not exist; creates
// nothing.
void require_may_create(const std::string& path, const std::string& purpose);

// Throws Error (kConfig) where `path` is a directory with a folder in it that would be lost with
// it, other than `known`. Links to folders do not count.
void require_no_folder(const std::string& path, std::string_view known, const std::string& purpose);

// Throws Error (kDoesNotFit) unless the file system of the directory has that many bytes left.
void require_free_space(const std::string& directory, int64_t bytes, const std::string& purpose);

}  // namespace strata::model
