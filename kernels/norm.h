// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "kernels/typed.h"
#include "kernels/workspace.h"

// RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4) over the last of three dimensions:
// rows = N = B*T, groups = G (1 for the hidden state, heads for q and k), cols = C.
//
//   forward   rstd[r,h] = 1/sqrt(mean_c(x[r,h,c]^2) + eps)
//             y[r,h,c] = x[r,h,c] * rstd[r,h] * (offset + w[c])
//   backward  g = dy[r,h,c] * (offset + w[c]),  n = x[r,h,c] * rstd[r,h]
//             dx[r,h,c] = dres[r,h,c] + rstd[r,h] * (g - n * mean_c(g*n))
//             dw[c] (+)= sum_{r,h} dy[r,h,c] * n
//
//   x       [N, G, C]  X     in      groups dense within a row; *_stride elements between rows,
//   y       [N, G, C]  I     out     0 = G*C; forward on the host: y may be x, with X = I
//   w       [C]        T     in      T = f32, bf16 or f16
//   offset                           0, or 1 when the stored weight is the difference from 1
//   rstd    [N, G]     f32   out/in  kept for backward; forward accepts null
//   dy      [N, G, C]  I     in
//   dres    [N, G, C]  X     in      gradient of the residual branch, with dx's stride; null when
//                                    there is none
//   dx      [N, G, C]  X     out     may be dres, and with X = I and equal strides also dy; null
//                                    where it is not wanted
//   dw      [C]        f32   out     null for a frozen weight
//   X = I where `inside` is set, else T; I: kernels/interior.h
//
// Where ranks have columns of each row (G = 1), means are over `whole_cols` columns of all, and the
// sum of a row, of x^2 or of g*n, is made of those of all ranks:
//
//   own_sums [N]       f32   out     sums of own columns, and nothing else; null: all of the above
//   all_sums [N]       f32   in      sums of all columns; null: C are all
//
// Sums in f32. Deterministic: dw is summed over row blocks that depend only on N. The roof is
// memory bandwidth.
namespace strata::kernels {

struct RmsNormForward {
  DType dtype = DType::kF32;  // of w
  bool inside = false;        // x is within a segment, not at its boundary
  int64_t rows = 0;
  int64_t groups = 1;
  int64_t cols = 0;
  const void* x = nullptr;
  int64_t x_stride = 0;
  const void* w = nullptr;
  float offset = 0.0f;
  Interior y = {};
  int64_t y_stride = 0;
  float* rstd = nullptr;
  float eps = 1e-5f;
  int64_t whole_cols = 0;  // 0: cols
  float* own_sums = nullptr;
  const float* all_sums = nullptr;
};

struct RmsNormBackward {
  DType dtype = DType::kF32;  // of w
  bool inside = false;        // x is within a segment, not at its boundary
  int64_t rows = 0;
  int64_t groups = 1;
  int64_t cols = 0;
  const void* x = nullptr;
  int64_t x_stride = 0;
  const void* w = nullptr;
  float offset = 0.0f;
  const float* rstd = nullptr;
  ConstInterior dy = {};
  int64_t dy_stride = 0;
  const void* dres = nullptr;
  void* dx = nullptr;
  int64_t dx_stride = 0;
  float* dw = nullptr;
  bool accumulate = false;  // of dw
  Workspace workspace = {};
  int64_t whole_cols = 0;  // 0: cols
  float* own_sums = nullptr;
  const float* all_sums = nullptr;
};

inline DType x_dtype_of(const RmsNormForward& op) {
  return op.inside ? op.y.dtype : op.dtype;
}
inline DType x_dtype_of(const RmsNormBackward& op) {
  return op.inside ? op.dy.dtype : op.dtype;
}

// Whether backends can compute an op of these shapes and types.
template <typename Op>
bool is_rms_norm(const Op& op) {
  const bool sums = op.own_sums != nullptr || op.all_sums != nullptr;
  return op.rows > 0 && op.groups > 0 && op.cols > 0 && is_weight_type(op.dtype) &&
         (!sums || op.groups == 1);
}

// The columns over which an op's means are.
template <typename Op>
int64_t mean_cols(const Op& op) {
  return op.whole_cols > 0 ? op.whole_cols : op.cols;
}

int64_t workspace_bytes(const RmsNormBackward& op, int threads);

}  // namespace strata::kernels
