// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"

// Token embedding.
//
//   forward   out[r, :] = scale * w[tokens[r], :]
//   backward  dw[v, :] (+)= sum of scale * dy[r, :] over the rows r with tokens[r] == v, ascending;
//             nothing is added for v == ignored
//
//   tokens  [N]     i32  in    each in [0, V): checked before anything is written
//   w       [V, C]  T    in    T = f32 or bf16, dense
//   out     [N, C]  T    out
//   dy      [N, C]  T    in
//   dw      [V, C]  f32  out   without `accumulate`, rows of absent tokens become zero
//   N = rows, C = cols, V = vocabulary; products are rounded to f32 before sums and to T
//
// Deterministic: parallel over columns, so a sum has one order. The roof is memory bandwidth.
namespace strata::kernels {

struct EmbeddingForward {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t vocabulary = 0;
  float scale = 1.0f;
  const int32_t* tokens = nullptr;
  const void* w = nullptr;
  void* out = nullptr;
};

struct EmbeddingBackward {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t vocabulary = 0;
  float scale = 1.0f;
  int32_t ignored = -1;
  const int32_t* tokens = nullptr;
  const void* dy = nullptr;
  float* dw = nullptr;
  bool accumulate = false;
};

}  // namespace strata::kernels
