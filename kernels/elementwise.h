// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "kernels/interior.h"

// Elementwise ops on dense arrays of `count` elements. T = f32, bf16 or f16, stored with to_bf16 or
// to_f16. I: kernels/interior.h.
//
//   AddResidual   y = x + a        x, y  T (y may be x)    a  I
//   Add           y = y + a        y, a  f32
//   Fill          y = value        y     I
//   SoftCap       y = cap * tanh(y / cap), cap > 0                y  f32
//   Cast          y = x            x     T                 y  I
//
// Deterministic; the roof is memory bandwidth.
namespace strata::kernels {

struct AddResidual {
  DType dtype = DType::kF32;
  int64_t count = 0;
  const void* x = nullptr;
  ConstInterior a = {};
  void* y = nullptr;
};

struct Add {
  int64_t count = 0;
  const float* a = nullptr;
  float* y = nullptr;
};

struct Fill {
  int64_t count = 0;
  float value = 0.0f;
  Interior y = {};
};

struct SoftCap {
  int64_t count = 0;
  float cap = 0.0f;
  float* y = nullptr;
};

struct Cast {
  DType dtype = DType::kF32;
  int64_t count = 0;
  const void* x = nullptr;
  Interior y = {};
};

}  // namespace strata::kernels
