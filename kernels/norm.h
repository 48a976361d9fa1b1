// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "kernels/workspace.h"

// RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4), rows = N = B*T, cols = C = hidden size.
//
//   forward   rstd[r] = 1/sqrt(mean_c(x[r,c]^2) + eps)      y[r,c] = x[r,c] * rstd[r] * w[c]
//   backward  g = dy[r,c]*w[c],  n = x[r,c]*rstd[r]
//             dx[r,c] = dres[r,c] + rstd[r] * (g - n * mean_c(g*n))
//             dw[c] (+)= sum_r dy[r,c] * n
//
//   x     [N, C]  T     in        T = f32 or bf16, dense
//   w     [C]     T     in
//   y     [N, C]  f32   out
//   rstd  [N]     f32   out/in    kept for backward; forward accepts null
//   dy    [N, C]  f32   in
//   dres  [N, C]  G     in        gradient of the residual branch; null when there is none
//   dx    [N, C]  G     out       may be dres, and with G = f32 also dy;  G = f32 or bf16
//   dw    [C]     f32   out       null for a frozen weight
//
// Interior in f32 for every T. Deterministic: dw is summed over row blocks that depend on N alone.
// The roof is memory bandwidth.
namespace strata::kernels {

struct RmsNormForward {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* x = nullptr;
  const void* w = nullptr;
  float* y = nullptr;
  float* rstd = nullptr;
  float eps = 1e-5f;
};

struct RmsNormBackward {
  DType dtype = DType::kF32;           // of x and w
  DType gradient_dtype = DType::kF32;  // of dres and dx
  int64_t rows = 0;
  int64_t cols = 0;
  const void* x = nullptr;
  const void* w = nullptr;
  const float* rstd = nullptr;
  const float* dy = nullptr;
  const void* dres = nullptr;
  void* dx = nullptr;
  float* dw = nullptr;
  bool accumulate = false;  // of dw
  Workspace workspace = {};
};

int64_t workspace_bytes(const RmsNormBackward& op, int threads);

}  // namespace strata::kernels
