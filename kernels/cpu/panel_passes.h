// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/panels.h"
#include "kernels/typed.h"

// How products by panels are cut, so that data used repeatedly stays in cache.
namespace strata::kernels::cpu {

// Sizes that fit the cache: rows and elements of transposed x, the depth of a panel of weights, and
// the rows that one chain of a weight gradient sums.
constexpr int64_t kForwardRows = 256;
constexpr int64_t kForwardElements = int64_t{256} << 10;
constexpr int64_t kInputDepth = 512;
constexpr int64_t kWeightDepth = 128;

constexpr int64_t kSharedElements = kForwardElements;
constexpr int64_t kThreadElements = std::max(
    {kForwardRows * kBandRows + kRegisterRows * kForwardElements / kPanelCols,
     kInputDepth* kPanelCols, kBandRows / kRegisterRows*(kWeightDepth* kRegisterRows + 16)});

// Scratch of the products: a shared part and a part for each thread.
constexpr int64_t panels_bytes(int threads) {
  return (kSharedElements + threads * kThreadElements) * 4;
}

// Part of a forward product: rows [row, row + rows) of x, and [first, first + depth) of inputs.
struct ForwardPass {
  const MatMulForward* op;
  int64_t row, rows, first, depth;
  float* panels;  // [ceil(rows / kPanelCols)][depth][kPanelCols] x transposed
};

// Elements of a band's packed dy, with a gap so that a whole vector can be stored at its end.
inline int64_t packed_block(int64_t depth) {
  return depth * kRegisterRows + 16;
}

// The size of about equal parts of `total`: at most `most` elements, in whole steps.
inline int64_t part_of(int64_t total, int64_t most, int64_t step) {
  return round_up(ceil_div(total, ceil_div(total, most / step * step)), step);
}

}  // namespace strata::kernels::cpu
