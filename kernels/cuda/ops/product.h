// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "kernels/interior.h"
#include "kernels/workspace.h"

// What ops ask of the library of products (cuBLASLt; plain loops on the host):
//
//   c[i] [m, n] (+)= a[i] [m, k] * b[i] [k, n]       i < batches
//
// in row-major order: `stride` elements between rows, `batch_stride` between the matrices of a
// batch. A transposed operand is stored as [k, m] or [n, k]. a and b have one type, f32, bf16 or
// f16; c is f32 or that type. Sums in f32, rounded once to nearest even; products of f32 operands
// are not rounded to TF32.
namespace strata::kernels::cuda {

struct Operand {
  ConstInterior data = {};
  int64_t stride = 0;
  bool transposed = false;
  int64_t batch_stride = 0;
};

inline Operand transpose(Operand from) {
  from.transposed = true;
  return from;
}

struct Result {
  Interior data = {};
  int64_t stride = 0;
  int64_t batch_stride = 0;
};

struct Product {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t batches = 1;
  Operand a = {};
  Operand b = {};
  Result c = {};
  bool accumulate = false;
  Workspace workspace = {};
};

}  // namespace strata::kernels::cuda
