// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/interior.h"
#include "kernels/workspace.h"

// Causal grouped-query attention, tiled with a running softmax; no T x T matrix is stored.
//
//   forward   s[i,j] = scale * q[i]·k[j] for starts[i] <= j <= i (window > 0: and j > i - window)
//             cap > 0: s = cap * tanh(s / cap) (Gemma 2, arXiv:2408.00118)
//             lse[i] = log sum_j exp(s[i,j])       o[i] = sum_j exp(s[i,j] - lse[i]) * v[j]
//   backward  p = exp(s - lse), delta[i] = do[i]·o[i], ds = p * (do[i]·v[j] - delta[i])
//             cap > 0: ds *= 1 - (s / cap)^2
//             dq[i] = scale * sum_j ds*k[j]   dk[j] = scale * sum_i ds*q[i]   dv[j] = sum_i p*do[i]
//
//   q, o, do, dq   [B, T, H, D]  I     heads dense within a row; *_stride elements between tokens,
//   k, v, dk, dv   [B, T, K, D]  I     0 = dense, so that q, k, v may be columns of one buffer;
//                                      sequences follow each other without a gap
//   lse            [B, H, T]     f32   out of forward, in of backward
//   starts         [B, T]        i32   where the document of each token starts in its sequence:
//                                      starts[i] is i, or that of i - 1; null: all are 0
//   B = batch, T = length, H = heads, K = kv_heads, H % K == 0, D = head_size
//   query head h reads kv head h / (H/K)
//
// With a context of several ranks, T tokens are those that this rank has of each sequence, i and j
// are positions in the whole sequence, and k, v, dk, dv are [ranks, B, T, K, D], those of all
// ranks. dk and dv are this rank's part of their sums.
//
// Outputs are overwritten and overlap no input. Sums in f32. Deterministic: tiles depend on
// shapes alone, and each output tile is summed by one task in ascending order. Source of the
// recurrences: Dao 2023, arXiv:2307.08691. The roof is the floating-point rate: 2*B*H*T*T*D
// operations forward (causal half), 5*B*H*T*T*D backward.
namespace strata::kernels {

struct AttentionForward {
  int64_t batch = 0;
  int64_t length = 0;
  ContextPart context = {};
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  float scale = 1.0f;
  float cap = 0.0f;
  int64_t window = 0;
  const int32_t* starts = nullptr;
  ConstInterior q = {};
  int64_t q_stride = 0;
  ConstInterior k = {};
  int64_t k_stride = 0;
  ConstInterior v = {};
  int64_t v_stride = 0;
  Interior o = {};
  int64_t o_stride = 0;
  float* lse = nullptr;
  Workspace workspace = {};
};

// do is spelt d_o in code, because `do` is a keyword.
struct AttentionBackward {
  int64_t batch = 0;
  int64_t length = 0;
  ContextPart context = {};
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  float scale = 1.0f;
  float cap = 0.0f;
  int64_t window = 0;
  const int32_t* starts = nullptr;
  ConstInterior q = {};
  int64_t q_stride = 0;
  ConstInterior k = {};
  int64_t k_stride = 0;
  ConstInterior v = {};
  int64_t v_stride = 0;
  ConstInterior o = {};
  int64_t o_stride = 0;
  const float* lse = nullptr;
  ConstInterior d_o = {};
  int64_t d_o_stride = 0;
  Interior dq = {};
  int64_t dq_stride = 0;
  Interior dk = {};
  int64_t dk_stride = 0;
  Interior dv = {};
  int64_t dv_stride = 0;
  Workspace workspace = {};
};

int64_t workspace_bytes(const AttentionForward& op, int threads);
int64_t workspace_bytes(const AttentionBackward& op, int threads);

}  // namespace strata::kernels
