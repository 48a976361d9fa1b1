// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "kernels/interior.h"
#include "kernels/workspace.h"

// LayerNorm (Ba, Kiros & Hinton 2016, arXiv:1607.06450, eq. 3-4), rows = N = B*T, cols = C.
//
//   forward   mean[r] = mean_c(x[r,c]),  rstd[r] = 1/sqrt(mean_c((x[r,c] - mean[r])^2) + eps)
//             y[r,c] = (x[r,c] - mean[r]) * rstd[r] * w[c] + b[c]
//   backward  g = dy[r,c] * w[c],  n = (x[r,c] - mean[r]) * rstd[r]
//             dx[r,c] = dres[r,c] + rstd[r] * (g - mean_c(g) - n * mean_c(g*n))
//             dw[c] (+)= sum_r dy[r,c] * n,  db[c] (+)= sum_r dy[r,c]
//
//   x           [N, C]  T    in       T = f32, bf16 or f16, dense
//   w, b        [C]     T    in
//   y           [N, C]  I    out      I: kernels/interior.h
//   mean, rstd  [N]     f32  out/in   kept for backward; forward accepts null for both
//   dy          [N, C]  I    in
//   dres        [N, C]  T    in       gradient of the residual branch; may be null
//   dx          [N, C]  T    out      may be dres; null: not computed
//   dw, db      [C]     f32  out      null for a frozen parameter
//
// Sums in f32. Deterministic: dw and db are summed over row blocks that depend only on N. The roof
// is memory bandwidth.
namespace strata::kernels {

struct LayerNormForward {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* x = nullptr;
  const void* w = nullptr;
  const void* b = nullptr;
  Interior y = {};
  float* mean = nullptr;
  float* rstd = nullptr;
  float eps = 1e-5f;
};

struct LayerNormBackward {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* x = nullptr;
  const void* w = nullptr;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  ConstInterior dy = {};
  const void* dres = nullptr;
  void* dx = nullptr;
  float* dw = nullptr;
  float* db = nullptr;
  bool accumulate = false;  // of dw and db
  Workspace workspace = {};
};

int64_t workspace_bytes(const LayerNormBackward& op, int threads);

}  // namespace strata::kernels
