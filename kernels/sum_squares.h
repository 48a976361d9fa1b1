// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/workspace.h"

// Sums of squares of f32 ranges in f64, each as a specified tree, the same bits in every backend.
// The ranges follow each other, and all but the last have `part` elements.
//
//   a range is cut into blocks of kSumSquaresBlock elements (the last may be short);
//   in a block, lane j of 16 adds x[i]^2 (exact in f64) over i % 16 == j, i ascending, from 0.0;
//   lanes are folded: for w = 8, 4, 2, 1: lane[j] += lane[j + w], j < w; lane[0] is the block's
//   sum; block sums are added in ascending order, from 0.0.
//
//   x    [count]                f32  in
//   out  [max(1, count / part)]      out   overwritten: the sum, and 1.0 if it is infinite or NaN,
//                                          which is so exactly when an element is; ranks can add
//                                          both. The quotient is rounded up
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
  int64_t part = 0;  // 0: one range
  const float* x = nullptr;
  SquaresPartial* out = nullptr;
  Workspace workspace = {};
};

int64_t workspace_bytes(const SumSquares& op, int threads);

// Elements of the first range, which is the largest.
constexpr int64_t range_numel(const SumSquares& op) {
  return op.part > 0 ? std::min(op.part, op.count) : op.count;
}

// Calls body(x, count, out) for each range.
template <typename Body>
void each_range(const SumSquares& op, const Body& body) {
  const int64_t part = range_numel(op);
  int64_t begin = 0;
  SquaresPartial* out = op.out;
  do {
    const int64_t count = std::min(part, op.count - begin);
    body(op.x + begin, count, out++);
    begin += count;
  } while (begin < op.count);
}

constexpr int64_t ranges_of(const SumSquares& op) {
  return op.part > 0 && op.count > op.part ? (op.count + op.part - 1) / op.part : 1;
}

}  // namespace strata::kernels
