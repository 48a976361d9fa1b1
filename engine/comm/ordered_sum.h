// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "engine/base/dtype.h"

namespace strata::comm {

// Sums that every group computes the same way:  out[i] = ((x0[i] + x1[i]) + x2[i]) + ...
//
// Accumulates in T, in the order of `sources`, which are of T or bf16. Each element is written to
// all of `outputs`; an output may be one of the sources. Bits do not depend on how a range is split
// into calls.
template <typename T, typename Source>
void ordered_sum(std::span<const Source* const> sources, std::span<T* const> outputs,
                 int64_t count) {
  const auto value_of = [](Source x) {
    if constexpr (std::is_same_v<Source, T>) {
      return x;
    } else {
      return from_bf16(x);
    }
  };
  constexpr int64_t kBlock = 2048;  // 8 to 16 KiB: stays in the first-level cache
  std::array<T, kBlock> sum;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t n = std::min(kBlock, count - first);
    std::transform(sources[0] + first, sources[0] + first + n, sum.begin(), value_of);
    for (const Source* source : sources.subspan(1)) {
      const Source* x = source + first;
      for (int64_t i = 0; i < n; ++i) sum[static_cast<size_t>(i)] += value_of(x[i]);
    }
    for (T* output : outputs) std::copy_n(sum.begin(), n, output + first);
  }
}

// To the nearest bf16, as which they are then sent.
inline void round_to_bf16(float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = from_bf16(nearest_bf16(values[i]));
}

}  // namespace strata::comm
