// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/workspace.h"

// Sum of squares of an f32 range in f64, as a specified tree, the same bits in every backend:
//
//   the range is cut into blocks of kSumSquaresBlock elements (the last may be short);
//   in a block, lane j of 16 adds x[i]^2 (exact in f64) over i % 16 == j, i ascending, from 0.0;
//   lanes are folded: for w = 8, 4, 2, 1: lane[j] += lane[j + w], j < w; lane[0] is the block's
//   sum; block sums are added in ascending order, from 0.0.
//
//   x    [count]  f32  in
//   out  [1]           out   overwritten: the sum, and 1.0 if it is infinite or NaN, which is so
//                            exactly when an element is; ranks can add both
//
// The roof is memory bandwidth: 4 bytes read an element.
namespace strata::kernels {

constexpr int64_t kSumSquaresBlock = 16384;

struct SquaresPartial {
  double sum = 0;
  double not_finite = 0;
};

struct SumSquares {
  int64_t count = 0;
  const float* x = nullptr;
  SquaresPartial* out = nullptr;
  Workspace workspace = {};
};

int64_t workspace_bytes(const SumSquares& op, int threads);

}  // namespace strata::kernels
