// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace strata::kernels {

// Scratch memory lent to one call, aligned to 64 bytes, on a CUDA device to 256 (cuBLASLt asks for
// that). Its contents have no meaning before and after the call.
//
// Each op that needs scratch has `workspace_bytes(op, threads)` beside it: an upper bound for both
// host backends from shape fields and dtype. `threads` is the thread count of the Parallel in which
// the op will run. For devices, see description.h. A call with less scratch is a bug, which a check
// reports.
struct Workspace {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

}  // namespace strata::kernels
