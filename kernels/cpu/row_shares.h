// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/rows.h"

// Sums over rows in an order that depends only on shapes: each task sums the rows of its block into
// its own share, and then the shares are added in ascending order.
namespace strata::kernels::cpu {

// sum[cols] (+)= shares[blocks, cols]
inline void add_shares(const float* shares, int64_t blocks, int64_t cols, bool accumulate,
                       float* sum) {
  parallel_blocks(cols, 512, [&](int64_t begin, int64_t end) {
    if (!accumulate) std::fill(sum + begin, sum + end, 0.0f);
    for (int64_t index = 0; index < blocks; ++index) {
      add_to(shares + index * cols + begin, sum + begin, end - begin);
    }
  });
}

}  // namespace strata::kernels::cpu
