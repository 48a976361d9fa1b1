// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/checksum.h"

namespace strata::data {

// A long array of elements of one width, which grows at its end: in memory, in blocks, or in a file
// with only its last blocks in memory.
//
// Guarantees: elements are the same in memory and in a file. Memory: bytes(); of a file at most two
// blocks, as long as settle() follows append(). Threads: any number may read(), only one may change
// it. Failure: Error that names the file; kDoesNotFit where its disk is full, or nearly so.
class LongArray {
 public:
  // An empty array in memory, of blocks of `block` elements.
  LongArray(int64_t width, int64_t block);
  // `count` elements of a file, from `offset_bytes` on.
  static LongArray open(const std::string& path, int64_t width, int64_t count,
                        int64_t offset_bytes = 0);

  LongArray(LongArray&&) noexcept;
  LongArray& operator=(LongArray&&) noexcept;
  ~LongArray();

  // Makes a new file take the elements that are settled; the array must be empty.
  void write_to(const std::string& path);
  void append(const void* elements, int64_t count);
  void truncate(int64_t count);  // to no fewer than are settled
  // Elements before `count` do not change any more, so that the file can take them.
  void settle(int64_t count);
  // Writes what is left to the file, and syncs it. Nothing is appended after it.
  void finish();

  void read(int64_t first, int64_t count, void* out) const;
  // An element that is not settled.
  void* at(int64_t index);

  int64_t count() const { return count_; }
  int64_t width() const { return width_; }
  // Of the whole file; -1 where it is not a regular one.
  int64_t file_size() const;
  bool is_in_file() const { return file_ >= 0; }
  int64_t bytes() const;
  // The checksum of all elements as one block (io::checksum_block); reads them.
  uint64_t checksum(uint64_t tag, uint64_t address) const;
  // The checksum of the file that write_to() made, as it was written; and of any, as it is read.
  uint64_t written_checksum() const { return written_sum_ ? written_sum_->value() : 0; }
  uint64_t read_checksum() const;
  // Tells the kernel that single elements are read next, not one after another.
  void expect_random_reads() const;

 private:
  int64_t first_in_memory() const { return written_ * block_; }
  void write_block(const char* from, int64_t bytes);
  void read_file(int64_t first, int64_t count, char* out) const;
  uint64_t checksum_by(io::ChecksumStream stream) const;

  std::string path_;
  int64_t width_;
  int64_t block_;  // elements
  int64_t count_ = 0;
  int64_t written_ = 0;  // blocks of the file; all of a finished one
  std::deque<std::unique_ptr<char[]>> blocks_;
  int file_ = -1;  // -1: in memory
  int64_t offset_bytes_ = 0;
  int64_t file_bytes_ = 0;
  bool is_whole_ = false;  // all elements are in the file
  std::optional<io::ChecksumStream> written_sum_;
};

// A long array of numbers.
class Numbers {
 public:
  Numbers() : array_(sizeof(int64_t), kBlock) {}
  explicit Numbers(const std::vector<int64_t>& values) : Numbers() {
    array_.append(values.data(), static_cast<int64_t>(values.size()));
  }
  explicit Numbers(LongArray array) : array_(std::move(array)) {}

  int64_t size() const { return array_.count(); }
  int64_t at(int64_t index) const {
    int64_t value = 0;
    array_.read(index, 1, &value);
    return value;
  }
  void push_back(int64_t value) {
    array_.append(&value, 1);
    array_.settle(array_.count());
  }
  void append(std::span<const int64_t> values) {
    array_.append(values.data(), static_cast<int64_t>(values.size()));
    array_.settle(array_.count());
  }
  std::vector<int64_t> read(int64_t first, int64_t count) const {
    std::vector<int64_t> values(static_cast<size_t>(count));
    array_.read(first, count, values.data());
    return values;
  }
  int64_t bytes() const { return array_.bytes(); }
  LongArray& array() { return array_; }
  const LongArray& array() const { return array_; }

 private:
  static constexpr int64_t kBlock = 8192;

  LongArray array_;
};

// Reads numbers one after another.
class NumberReader {
 public:
  explicit NumberReader(const Numbers& numbers, int64_t first = 0)
      : numbers_(numbers), next_(first) {}
  // The next number; nullopt after the last one.
  std::optional<int64_t> next() {
    if (at_ == read_.size() && !fill()) return std::nullopt;
    return read_[at_++];
  }

 private:
  bool fill();

  const Numbers& numbers_;
  int64_t next_;
  std::vector<int64_t> read_;
  size_t at_ = 0;
};

}  // namespace strata::data
