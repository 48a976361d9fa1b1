// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/model/spec.h"
#include "engine/model_files/direct_reader.h"
#include "engine/model_files/model_directory.h"

namespace strata::model {

struct ReadAheadOptions {
  int64_t buffer_bytes = 0;  // of a DirectReader; 0: the kernel reads ahead into the page cache
};

// Reads weights ahead while earlier ones are converted. It expects the order of loading: segments
// ascending, and in each segment its parameters by offset; it skips trained or frozen parameters as
// long as the caller skips them. Bytes are read once, past the page cache into a buffer if the
// files allow O_DIRECT. For any other order (frozen weights that every step reads again) and for
// transposed tensors, it only advises the kernel which bytes of the parameter come next.
//
// Guarantees: get() always returns the bytes of the file. Threads: one at a time. Failure: get()
// throws as File::read_at does, reach() Error (kDoesNotFit). Memory: the buffer, from the first
// reach() until the last parameter was read or the caller leaves the order; 48 bytes a parameter.
// `directory` and `spec` must outlive it.
class ReadAhead : public StoredBytes {
 public:
  ReadAhead(const ModelDirectory& directory, const ModelSpec& spec,
            const ReadAheadOptions& options = {});

  // Announces that elements [first, first + count) of a parameter are read next.
  void reach(const Parameter& parameter, int64_t first, int64_t count);
  const void* get(const File& file, int64_t offset, int64_t bytes, void* room) override;

  bool has_buffer() const { return direct_ != nullptr; }

 private:
  struct Item {
    const Parameter* parameter;
    ModelDirectory::StoredRange range;
    int64_t end_bytes;  // of all items up to it
    int64_t begin_bytes() const { return end_bytes - range.bytes; }
  };
  bool find(const Parameter& parameter);
  void open_direct();
  void start_more();
  void advise_within(const Parameter& parameter, int64_t first, int64_t count) const;
  void advise_window(int64_t read_bytes);

  // Constant after construction
  const ModelDirectory& directory_;
  const ReadAheadOptions options_;
  std::vector<Item> items_;

  size_t at_ = 0;                   // the item that is being read
  bool skips_[2] = {false, false};  // trained, frozen: whether the caller skips them
  // How far reading ahead has got.
  size_t next_item_ = 0;
  int64_t next_bytes_ = 0;  // within that item
  bool opened_ = false;
  std::unique_ptr<DirectReader> direct_;
};

}  // namespace strata::model
