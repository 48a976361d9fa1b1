// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/model_directory.h"
#include "engine/model/spec.h"

namespace strata::model {

// Has the kernel read the weights that come next while earlier ones are converted. The order is
// that of loading: segments ascending, in each its parameters by offset. In any other order (frozen
// weights that every step reads again) it looks ahead within the parameter alone.
//
// Threads: one at a time. Memory: 16 bytes a parameter; the pages are the kernel's. `directory` and
// `spec` must outlive it.
class ReadAhead {
 public:
  ReadAhead(const ModelDirectory& directory, const ModelSpec& spec);

  // Elements [first, first + count) of a parameter are read next.
  void reach(const Parameter& parameter, int64_t first, int64_t count);

 private:
  struct Item {
    const Parameter* parameter;
    int64_t end_bytes;  // of all items up to it
  };
  int64_t bytes_of_item(size_t index) const;
  void reach_within(const Parameter& parameter, int64_t first, int64_t count);

  // Constant after construction
  const ModelDirectory& directory_;
  std::vector<Item> items_;

  bool reads_trained_ = false;  // a run that resumes reads frozen parameters alone
  size_t at_ = 0;               // the item that is being read
  size_t advised_item_ = 0;     // up to where the kernel was told
  int64_t advised_bytes_ = 0;   // within that item
};

}  // namespace strata::model
