// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

namespace strata::comm {

// Sums that every group computes the same way:  out[i] = ((x0[i] + x1[i]) + x2[i]) + ...
//
// Accumulates in T, in the order of `sources`. Each element is written to all of `outputs`; an
// output may be one of the sources. Bits do not depend on how a range is split into calls.
template <typename T>
void ordered_sum(std::span<const T* const> sources, std::span<T* const> outputs, int64_t count) {
  constexpr int64_t kBlock = 2048;  // 8 to 16 KiB: stays in the first-level cache
  std::array<T, kBlock> sum;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t n = std::min(kBlock, count - first);
    std::copy_n(sources[0] + first, n, sum.begin());
    for (const T* source : sources.subspan(1)) {
      const T* x = source + first;
      for (int64_t i = 0; i < n; ++i) sum[static_cast<size_t>(i)] += x[i];
    }
    for (T* output : outputs) std::copy_n(sum.begin(), n, output + first);
  }
}

}  // namespace strata::comm
