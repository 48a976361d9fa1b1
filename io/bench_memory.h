// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "io/huge_memory.h"

namespace strata::io {

// Buffers of a benchmark, filled with bytes that a drive cannot compress.
class BenchMemory : public HugeMemory {
 public:
  explicit BenchMemory(uint64_t bytes);
};

}  // namespace strata::io
