// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "kernels/context.h"

// Learned position embeddings for a batch of sequences of T = length tokens. Row r has the position
// at(r) = r % T - starts[r], or positions[r]; with a context, the position in the whole sequence
// instead of r % T.
//
//   forward   y[r, :] += p[at(r), :]
//   backward  dp[t, :] (+)= sum of dy[r, :] over the rows r with at(r) == t, r ascending
//
//   y   [N, C]  T    in, out   T = f32, bf16 or f16, dense
//   p   [P, C]  T    in        P = positions >= T
//   dy  [N, C]  T    in
//   starts  [N]  i32  where the row's document starts in its sequence (attention.h); null: all 0
//   positions  [N]  i32  of each row, below T; forward alone; may be null
//   dp  [P, C]  f32  out       without `accumulate`, rows from T on become zero
//   N = rows, a multiple of T (any number with positions); C = cols
//
// Deterministic: parallel over columns, so a sum has one order. The roof is memory bandwidth.
namespace strata::kernels {

constexpr int64_t position_of(int64_t row, int64_t length, const int32_t* starts) {
  return row % length - (starts == nullptr ? 0 : starts[row]);
}

// The position of a row without positions of its own.
template <typename Op>
int64_t position_of(const Op& op, int64_t row) {
  return op.context.position(row % op.length, op.length) -
         (op.starts == nullptr ? 0 : op.starts[row]);
}

struct PositionForward {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t length = 0;
  ContextPart context = {};
  const int32_t* starts = nullptr;
  const int32_t* positions = nullptr;
  const void* p = nullptr;
  void* y = nullptr;
};

struct PositionBackward {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t length = 0;
  ContextPart context = {};
  const int32_t* starts = nullptr;
  int64_t positions = 0;
  const void* dy = nullptr;
  float* dp = nullptr;
  bool accumulate = false;
};

}  // namespace strata::kernels
