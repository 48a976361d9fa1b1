// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "kernels/interior.h"
#include "kernels/workspace.h"

// Output projection and cross entropy in one op, by chunks of rows, so that [N, V] logits are never
// stored.
//
//   z[r,v] = h[r]·w[v]       loss[r] = log sum_v exp(z[r,v]) - z[r, targets[r]]
//   cap > 0: z = cap * tanh(z / cap), and dz below times 1 - (z / cap)^2
//   loss_sum = sum of loss[r] over the rows with a target
//   dz[r,v] = grad_scale * (softmax(z[r])[v] - (v == targets[r])), zero for rows without a target
//   dh[r] = sum_v dz[r,v] * w[v]     dw[v] (+)= sum_r dz[r,v] * h[r]
//
//   h         [N, C]  I    in    normed hidden state, dense
//   w         [V, C]  T    in    T = f32 or bf16, dense
//   targets   [N]     i32  in    -1: the row does not count; otherwise in [0, V), checked
//   loss_sum  [1]     f64  out   overwritten; rows summed in ascending order
//   dh        [N, C]  I    out   overwritten; may be h; null: forward only (dw must be null too)
//   dw        [V, C]  f32  out   null for a frozen weight
//   accumulate                   dw is added to; otherwise overwritten
//   N = rows, C = cols, V = vocabulary
//
// In dz, a backend may treat probabilities below 1e-25 of the row's largest as zero.
// Deterministic: the chunk depends only on V (chunk_rows). Logits and products in f32, losses in
// f64. 2*N*V*C operations forward, 6*N*V*C with gradients.
namespace strata::kernels {

struct LinearCrossEntropy {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t vocabulary = 0;
  float cap = 0.0f;
  ConstInterior h = {};
  const void* w = nullptr;
  const int32_t* targets = nullptr;
  float grad_scale = 1.0f;
  double* loss_sum = nullptr;
  Interior dh = {};
  float* dw = nullptr;
  bool accumulate = false;
  Workspace workspace = {};
};

// Rows of a chunk, whose logits are held at the same time.
int64_t cross_entropy_chunk_rows(int64_t vocabulary);

int64_t workspace_bytes(const LinearCrossEntropy& op, int threads);

}  // namespace strata::kernels
