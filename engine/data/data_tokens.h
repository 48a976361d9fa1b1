// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/long_array.h"

namespace strata::data {

// A long sequence of token ids, and which of them are targets: in memory, with two bytes a token if
// the vocabulary allows, or in files that are read when needed.
//
// Guarantees: every id returned is below the vocabulary size. Memory: bytes(). Threads: any number
// may read, only one append. Failure: Error that names the file, the position and the id.
class TokenSequence {
 public:
  // An empty sequence in memory, to append to. `name` is for messages.
  TokenSequence(std::string name, int64_t vocabulary);
  // What write_to() and finish() left in a directory.
  TokenSequence(std::string name, int64_t vocabulary, LongArray ids, LongArray masks,
                int64_t masked_count);
  // Opens a token file. Ids are little-endian, 16-bit or, when the vocabulary exceeds 65,536,
  // 32-bit; the header of an llm.c file overrides that. Ids in files of up to 1 GiB are checked
  // here, in larger files when they are read.
  static TokenSequence open_file(const std::string& path, int64_t vocabulary);
  static bool is_llmc_file(const std::string& path);

  // Makes new files take the tokens that are settled; the sequence must be empty.
  void write_to(const std::string& ids_path, const std::string& masks_path);
  void append(const std::vector<int32_t>& ids, bool are_targets);
  // Takes the last tokens back, so that `count` are left; no fewer than are settled.
  void truncate(int64_t count);
  // Takes all tokens back, also those that are settled; in memory alone.
  void clear();
  // All tokens so far stay as they are.
  void settle();
  // Writes what is left to the files. Nothing is appended after it.
  void finish();
  void read(int64_t first, int64_t count, int32_t* ids) const;

  // Whether this token is a target of the loss.
  bool is_target(int64_t index) const;
  // Sets those of `values` to -1 whose tokens are no targets.
  void mask(int64_t first, int64_t count, int32_t* values) const;
  bool has_masks() const { return masked_count_ > 0; }
  int64_t masked_count() const { return masked_count_; }
  int64_t target_count(int64_t first, int64_t count) const;

  int64_t count() const { return ids_.count(); }
  // A hash of the ids and of which are targets; for a file of more than 1 GiB, of its size and the
  // ids in its first 1 GiB.
  uint64_t fingerprint() const;
  int64_t bytes() const;
  // The memory of a short sequence: one block.
  static int64_t block_bytes(int64_t vocabulary);
  // Bytes of one token.
  static int64_t width_of(int64_t vocabulary);
  const LongArray& ids() const { return ids_; }
  const LongArray& masks() const { return masks_; }
  const std::string& name() const { return name_; }
  // "16-bit tokens", for Dataset::description.
  const std::string& format() const { return format_; }

 private:
  void check(const int32_t* ids, int64_t first, int64_t count) const;
  void mark_masked(int64_t first, int64_t count);
  // Calls visit(bits, first) for each word of masks that has some of these tokens: `bits` are
  // theirs, `first` is the token of the lowest.
  template <typename Visit>
  void each_masks(int64_t first, int64_t count, const Visit& visit) const;

  std::string name_;
  std::string format_;
  int64_t vocabulary_;
  LongArray ids_;    // 2 or 4 bytes each
  LongArray masks_;  // words with a bit for each token, up to the last that is not a target
  int64_t masked_count_ = 0;
  int64_t settled_ = 0;
  bool checks_reads_ = false;  // files may hold anything
};

}  // namespace strata::data
