// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/interior.h"

// Rotary position embedding (Su et al. 2021, arXiv:2104.09864) in place, in the "rotate half"
// pairing of Hugging Face: of the first R elements of a head, element i is paired with i + R/2.
//
//   a = x[r,h,i], b = x[r,h,i+R/2], c = cos[t,i], s = sin[t,i], t = r mod T,
//                                  or positions[r]
//   x[r,h,i] = a*c - b*s      x[r,h,i+R/2] = b*c + a*s
//   inverse: s = -s, which is the backward
//
//   x         [N, H, D]   I    in/out   heads dense within a row; row_stride elements between rows,
//                                       0 = H*D
//   cos, sin  [T, R/2]    f32  in
//   positions [N]       i32  in       below T; may be null
//   N = rows = B*T (any number with positions), T = length, H = heads, D = head_size, R = rotary
//   (even, at most D; 0: D)
//
// Deterministic; the roof is memory bandwidth.
namespace strata::kernels {

struct Rope {
  int64_t rows = 0;
  int64_t length = 0;
  int64_t heads = 0;
  int64_t head_size = 0;
  int64_t rotary = 0;
  Interior x = {};
  int64_t row_stride = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
  const int32_t* positions = nullptr;
  bool inverse = false;
};

}  // namespace strata::kernels
