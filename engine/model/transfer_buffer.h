// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/base/units.h"
#include "engine/model/spec.h"

namespace strata::model {

// What loading or exporting has in flight: enough for a drive, little beside the least run.
inline constexpr int64_t kTransferBufferBytes = 24 * kMiB;
inline constexpr int64_t kTransferBlockBytes = 4 * kMiB;

// The memory that loading or exporting such a model takes for its buffers; never both at once. A
// model that is read in less time than it takes to set them up gets none.
int64_t transfer_buffer_bytes(const ModelSpec& spec);

// Memory for O_DIRECT, in huge pages where the kernel has them: a request of scattered small pages
// takes many entries of a drive's queue. Throws Error (kDoesNotFit).
class TransferBuffer {
 public:
  explicit TransferBuffer(int64_t bytes);
  ~TransferBuffer();
  TransferBuffer(const TransferBuffer&) = delete;
  TransferBuffer& operator=(const TransferBuffer&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  // Constant after construction
  const int64_t bytes_;
  const int64_t mapping_bytes_;  // room to align
  void* mapping_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace strata::model
