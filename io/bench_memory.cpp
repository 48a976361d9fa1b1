// SPDX-License-Identifier: Apache-2.0
#include "io/bench_memory.h"

#include <sys/mman.h>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/base/units.h"

namespace strata::io {

BenchMemory make_bench_memory(uint64_t bytes) {
  constexpr uint64_t kHugePageBytes = 2 << 20;
  const uint64_t length = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  BenchMemory memory(static_cast<char*>(std::aligned_alloc(kHugePageBytes, length)));
  if (memory == nullptr) {
    throw Error(ErrorCode::kDoesNotFit,
                "allocate benchmark buffers: " + format_bytes(static_cast<int64_t>(bytes)) +
                    ": not enough memory (use smaller blocks or less depth)");
  }
  (void)madvise(memory.get(), length, MADV_HUGEPAGE);  // refused: small pages then
  const Philox random(7);
  auto* words = reinterpret_cast<uint64_t*>(memory.get());
  for (uint64_t i = 0; i < bytes / 8; ++i) words[i] = random.u64(i);
  return memory;
}

}  // namespace strata::io
