// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace strata::io {

struct FreeDeleter {
  void operator()(char* data) const { std::free(data); }
};
using BenchMemory = std::unique_ptr<char, FreeDeleter>;

// Buffers of a benchmark, as the arenas of a run are: in huge pages where the kernel has them (a
// request of scattered pages of 4 KiB takes many entries of a drive's queue), and filled with bytes
// that a drive cannot compress. Throws Error (kDoesNotFit).
BenchMemory make_bench_memory(uint64_t bytes);

}  // namespace strata::io
