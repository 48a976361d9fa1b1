// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"

// Elementwise ops on dense arrays of `count` elements. T = f32 or bf16; a store as bf16 is to_bf16.
//
//   AddResidual   y = x + a        x, y  T (y may be x)    a  f32
//   Add           y = y + a        y, a  f32
//   Fill          y = value        y     f32
//   SoftCap       y = cap * tanh(y / cap), cap > 0                y  f32
//   Cast          y = x            x of type `from`, y of type `to`; y may be x when they are equal
//
// Deterministic; the roof is memory bandwidth.
namespace strata::kernels {

struct AddResidual {
  DType dtype = DType::kF32;
  int64_t count = 0;
  const void* x = nullptr;
  const float* a = nullptr;
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
  float* y = nullptr;
};

struct SoftCap {
  int64_t count = 0;
  float cap = 0.0f;
  float* y = nullptr;
};

struct Cast {
  DType from = DType::kF32;
  DType to = DType::kF32;
  int64_t count = 0;
  const void* x = nullptr;
  void* y = nullptr;
};

}  // namespace strata::kernels
