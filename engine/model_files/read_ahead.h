// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "engine/model/spec.h"
#include "engine/model_files/direct_reader.h"
#include "engine/model_files/model_directory.h"

namespace strata::model {

// Reads weights ahead while earlier ones are converted, in groups that are expected in this order:
// past the page cache into a buffer where the files allow O_DIRECT, otherwise by advice to the
// kernel, as for transposed tensors, whose elements are all over the stored matrix.
//
// Guarantees: get() always returns the bytes of the file, whether they were expected or not.
// Threads: one at a time. Failure: get() throws as File::read_at does, expect() Error
// (kDoesNotFit). Memory: the buffer, from the first expect() until all that is expected was read.
// `directory` must outlive it.
class ReadAhead : public StoredBytes {
 public:
  // buffer_bytes is that of a DirectReader; 0: the kernel reads ahead into the page cache.
  explicit ReadAhead(const ModelDirectory& directory, int64_t buffer_bytes = 0);

  // Elements [first, first + count) of a parameter.
  struct Part {
    const Parameter* parameter;
    int64_t first;
    int64_t count;
  };
  // Parts that are read one after the other, after all groups that are expected so far.
  void expect(std::span<const Part> group);
  // The oldest group is over, however much of it was read.
  void finish();
  // Nothing of what is expected is read next.
  void forget();
  const void* get(const File& file, int64_t offset, int64_t bytes, void* room) override;

  bool has_buffer() const { return direct_ != nullptr; }
  size_t waiting() const { return next_.size(); }  // ranges that are not asked for yet

 private:
  struct Range {
    const File* file;
    int64_t offset;
    int64_t bytes;
    bool in_order;  // its bytes are read one after the other
    int64_t group;
  };
  void open_direct();
  void start_more();

  // Constant after construction
  const ModelDirectory& directory_;
  const int64_t buffer_bytes_;

  std::deque<Range> next_;       // expected, and not yet asked of the drive
  std::deque<int64_t> advised_;  // by group that is not over: bytes that the kernel reads ahead
  int64_t first_group_ = 0;      // that is not over
  bool tried_ = false;           // O_DIRECT, in vain
  std::unique_ptr<DirectReader> direct_;
};

}  // namespace strata::model
