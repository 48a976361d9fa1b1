// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace strata::io {

// Memory for O_DIRECT, in huge pages where the kernel has them, because a request in scattered 4
// KiB pages takes many entries of a drive's queue. Aligned to 2 MiB, with a length that is a
// multiple of 2 MiB, and zero; pages become present when they are first touched. Throws Error
// (kDoesNotFit).
class HugeMemory {
 public:
  explicit HugeMemory(int64_t bytes);
  ~HugeMemory();
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  // Constant after construction
  const int64_t bytes_;
  const int64_t mapping_bytes_;  // room to align
  void* mapping_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace strata::io
