// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "engine/model/spec.h"
#include "engine/model_files/direct_reader.h"
#include "engine/model_files/model_directory.h"

namespace strata::model {

// Reads weights ahead while earlier ones are converted, in the order in which they are expected:
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

  // Elements [first, first + count) of a parameter are read after all that is expected so far.
  void expect(const Parameter& parameter, int64_t first, int64_t count);
  // Nothing of what is expected is read next.
  void forget();
  const void* get(const File& file, int64_t offset, int64_t bytes, void* room) override;

  bool has_buffer() const { return direct_ != nullptr; }

 private:
  struct Range {
    const File* file;
    int64_t offset;
    int64_t bytes;
    bool in_order;  // its bytes are read one after the other
  };
  void open_direct();
  void start_more();

  // Constant after construction
  const ModelDirectory& directory_;
  const int64_t buffer_bytes_;

  std::deque<Range> next_;  // expected, and not yet asked of the drive
  int64_t advised_ = 0;     // bytes that the kernel reads ahead, about
  bool tried_ = false;      // to open the files for O_DIRECT, in vain
  std::unique_ptr<DirectReader> direct_;
};

}  // namespace strata::model
