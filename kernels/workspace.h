// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace strata::kernels {

// Scratch bytes lent to one call, 64-byte aligned; contents mean nothing before and after it.
//
// Every op that needs some has `workspace_bytes(op, threads)` beside it: an upper bound for both
// host backends by shape fields and dtype alone (addresses are not looked at). `threads` is the
// thread count of the Parallel in which the op will run. What a device needs, its description says
// (description.h). A call with less is a bug and is checked.
struct Workspace {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

}  // namespace strata::kernels
