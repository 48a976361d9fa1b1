// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace strata::data {

// A long sequence of token ids: in memory, two bytes a token where the vocabulary allows it, or in
// a file that is read as it is needed.
//
// Guarantees: every id that comes out is below the vocabulary. Memory: bytes(). Threads: read() any
// number at a time, append() one. Failure: Error naming the file, the position and the id.
class TokenSequence {
 public:
  // Empty, in memory, to be appended to. `name` is for messages.
  TokenSequence(std::string name, int64_t vocabulary);
  // A token file: 16-bit little-endian ids, 32-bit where the vocabulary exceeds 65,536, or what the
  // header of an llm.c file says. Ids are checked here in files of up to 1 GiB, in larger ones when
  // they are read.
  static TokenSequence open_file(const std::string& path, int64_t vocabulary);
  static bool is_llmc_file(const std::string& path);

  TokenSequence(TokenSequence&&) noexcept;
  ~TokenSequence();

  void append(const std::vector<int32_t>& ids, bool are_targets);
  void read(int64_t first, int64_t count, int32_t* ids) const;

  // Whether the loss looks at this token when it is the next one.
  bool is_target(int64_t index) const;
  bool has_masks() const { return masked_count_ > 0; }
  int64_t target_count(int64_t first, int64_t count) const;

  int64_t count() const { return count_; }
  // Of the ids and of which are targets; of a file of more than 1 GiB, of its size and the ids in
  // its first 1 GiB.
  uint64_t fingerprint() const;
  int64_t bytes() const;
  // The memory of a short sequence, which is held in whole blocks.
  static int64_t block_bytes(int64_t vocabulary);
  // Bytes of one token.
  static int64_t width_of(int64_t vocabulary);
  const std::string& name() const { return name_; }
  // "16-bit tokens", for the line that says what was found.
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
  std::vector<uint64_t> masked_;  // a bit a token, up to the last one that is no target
  int64_t masked_count_ = 0;
  int file_ = -1;  // -1: in memory
  int64_t file_offset_bytes_ = 0;
};

}  // namespace strata::data
