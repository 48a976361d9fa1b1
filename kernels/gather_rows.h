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
// Parts of rows that lie at equal distances:  y[i] = x[i],  i < rows
//
//   x, y      [rows, row_bytes], rows x_stride and y_stride bytes apart; y overlaps no input
//
// Both are copies: the roof is memory bandwidth.
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

struct CopyRows {
  int64_t rows = 0;
  int64_t row_bytes = 0;
  const void* x = nullptr;
  int64_t x_stride = 0;
  void* y = nullptr;
  int64_t y_stride = 0;
};

}  // namespace strata::kernels
