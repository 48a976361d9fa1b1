// SPDX-License-Identifier: Apache-2.0
#include "io/bench_memory.h"

#include "engine/base/rng.h"

namespace strata::io {

BenchMemory::BenchMemory(uint64_t bytes) : HugeMemory(static_cast<int64_t>(bytes)) {
  const Philox random(7);
  auto* words = reinterpret_cast<uint64_t*>(data());
  for (uint64_t i = 0; i < bytes / 8; ++i) words[i] = random.u64(i);
}

}  // namespace strata::io
