// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace strata::data {

// A long sequence of token ids: in memory, with two bytes a token if the vocabulary allows, or in a
// file that is read when needed.
//
// Guarantees: every id returned is below the vocabulary size. Memory: bytes(). Threads: any number
// may call read(), only one append(). Failure: Error that names the file, the position and the id.
class TokenSequence {
 public:
  // An empty sequence in memory, to append to. `name` is for messages.
  TokenSequence(std::string name, int64_t vocabulary);
  // Opens a token file. Ids are little-endian, 16-bit or, when the vocabulary exceeds 65,536,
  // 32-bit; the header of an llm.c file overrides that. Ids in files of up to 1 GiB are checked
  // here, in larger files when they are read.
  static TokenSequence open_file(const std::string& path, int64_t vocabulary);
  static bool is_llmc_file(const std::string& path);

  TokenSequence(TokenSequence&&) noexcept;
  ~TokenSequence();

  void append(const std::vector<int32_t>& ids, bool are_targets);
  // Takes the last tokens back, so that `count` are left.
  void truncate(int64_t count);
  void read(int64_t first, int64_t count, int32_t* ids) const;

  // Whether this token is a target of the loss.
  bool is_target(int64_t index) const;
  bool has_masks() const { return masked_count_ > 0; }
  int64_t target_count(int64_t first, int64_t count) const;

  int64_t count() const { return count_; }
  // A hash of the ids and of which are targets; for a file of more than 1 GiB, of its size and the
  // ids in its first 1 GiB.
  uint64_t fingerprint() const;
  int64_t bytes() const;
  // The memory of a short sequence: one block.
  static int64_t block_bytes(int64_t vocabulary);
  // Bytes of one token.
  static int64_t width_of(int64_t vocabulary);
  const std::string& name() const { return name_; }
  // "16-bit tokens", for Dataset::description.
  const std::string& format() const { return format_; }

 private:
  void read_raw(int64_t first, int64_t count, void* out) const;
  void check(const int32_t* ids, int64_t first, int64_t count) const;
  void mark_masked(int64_t first, int64_t count);

  std::string name_;
  std::string format_;
  int64_t vocabulary_;
  int64_t width_;  // bytes a token: 2 or 4
  int64_t count_ = 0;
  std::vector<std::unique_ptr<char[]>> blocks_;
  std::vector<uint64_t> masked_;  // a bit for each token, up to the last that is not a target
  int64_t masked_count_ = 0;
  int file_ = -1;  // -1: in memory
  int64_t file_offset_bytes_ = 0;
};

}  // namespace strata::data
