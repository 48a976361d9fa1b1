// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "kernels/interior.h"
#include "kernels/workspace.h"

// Products with a weight matrix w[n, k] as stored by Hugging Face (outputs first).
//
//   forward   y [m, n] (+)= x [m, k] * w [n, k]^T (+ bias [n])
//   input     dx[m, k] (+)= dy[m, n] * w [n, k]
//   weight    dw[n, k] (+)= dy[m, n]^T * x[m, k]      dbias[n] (+)= sum_m dy[m, n]
//
//   m = rows (tokens), n = outputs, k = inputs; all > 0
//   w, bias          T    in    row-major, dense, T = f32, bf16 or f16
//   x, dy            I    in    row-major; *_stride = elements between rows, 0 means dense
//   y, dx            I    out   as x and dy, or f32, which ranks add; must not overlap any input
//   dw, dbias        f32  out   dense; dbias null when there is no bias
//   accumulate       the result is added to the output; otherwise it overwrites it
//   by_row           the bits of a row of y depend on that row of x and on w alone, not on m; also
//                    the fast way for few rows, in which reading w takes most of the time
//
// I: kernels/interior.h. Sums in f32. Deterministic: tilings depend on m, n, k alone, never on
// threads. The roof is the floating-point rate: 2*m*n*k operations.
namespace strata::kernels {

struct MatMulForward {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t outputs = 0;
  int64_t inputs = 0;
  ConstInterior x = {};
  int64_t x_stride = 0;
  const void* w = nullptr;
  const void* bias = nullptr;
  Interior y = {};
  int64_t y_stride = 0;
  bool accumulate = false;
  bool by_row = false;
  Workspace workspace = {};
};

struct MatMulInput {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t outputs = 0;
  int64_t inputs = 0;
  ConstInterior dy = {};
  int64_t dy_stride = 0;
  const void* w = nullptr;
  Interior dx = {};
  int64_t dx_stride = 0;
  bool accumulate = false;
  Workspace workspace = {};
};

struct MatMulWeight {
  int64_t rows = 0;
  int64_t outputs = 0;
  int64_t inputs = 0;
  ConstInterior dy = {};
  int64_t dy_stride = 0;
  ConstInterior x = {};
  int64_t x_stride = 0;
  float* dw = nullptr;
  float* dbias = nullptr;
  bool accumulate = false;
  Workspace workspace = {};
};

int64_t workspace_bytes(const MatMulForward& op, int threads);
int64_t workspace_bytes(const MatMulInput& op, int threads);
int64_t workspace_bytes(const MatMulWeight& op, int threads);

}  // namespace strata::kernels
