// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"

// Converts elements of a file (little-endian, any alignment) to planes, and back.
//
//   ConvertIn    src of type `dtype` (f32, bf16, f16, f8_e4m3) -> the given planes
//   ConvertOut   planes -> dst of type `dtype` (f32, bf16, f16; bf16 is to_bf16 of the master, f16
//                is rounded to nearest even, infinite beyond 65504)
//
//   planes: `master` f32, or `hi` and `lo` (split_master); `hi` alone is the bf16 weight of a
//   frozen parameter (ConvertOut then widens it for f32). Exactly one form is given.
//   src, dst: `count` elements as raw bytes; they overlap no plane
//
// f16 and f8_e4m3 (OCP 8-bit, no infinities) widen exactly, subnormals, infinities and NaN
// included. bf16 -> hi alone copies the bits.
// Both directions are exact where the destination can hold the value. Same bits in every backend.
namespace strata::kernels {

struct ConvertIn {
  DType dtype = DType::kF32;
  int64_t count = 0;
  const void* src = nullptr;
  float* master = nullptr;
  uint16_t* hi = nullptr;
  uint16_t* lo = nullptr;
};

struct ConvertOut {
  DType dtype = DType::kF32;
  int64_t count = 0;
  const float* master = nullptr;
  const uint16_t* hi = nullptr;
  const uint16_t* lo = nullptr;
  void* dst = nullptr;
};

}  // namespace strata::kernels
