// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// One position of each sequence of a batch:  y[b] = x[b*T + position[b]],  b < B
//                       with `together`:    y[b] = x[position[b]]
//
//   x         [B*T, row_bytes]  in    rows of any type, dense; together: [T, row_bytes]
//   position  [B]  i32          in    each in [0, T)
//   y         [B, row_bytes]    out   overlaps no input
//   B = rows, T = length
//
// A copy: the roof is memory bandwidth.
namespace strata::kernels {

struct GatherRows {
  int64_t rows = 0;
  int64_t length = 0;
  int64_t row_bytes = 0;
  bool together = false;  // all positions are of one sequence
  const void* x = nullptr;
  const int32_t* position = nullptr;
  void* y = nullptr;
};

}  // namespace strata::kernels
