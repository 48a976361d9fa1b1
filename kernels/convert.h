// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"

// Converts elements of a file (little-endian, any alignment) to planes, and back.
//
//   ConvertIn    src of type `dtype` (f32, bf16, f16, f8_e4m3) -> the given planes
//   ConvertOut   planes -> dst of type `dtype` (f32, bf16, f16; rounded with to_bf16 and to_f16)
//
//   planes, of which one form is given:
//     hi, lo       split_master of the value
//     master       f32
//     master, hi   f32, and to_f16 of it; ConvertOut reads the master
//     hi           the weight of a frozen parameter, bf16 or f16 as `weights` says
//   src, dst: `count` elements as raw bytes; they overlap no plane
//
// f16 and f8_e4m3 (OCP 8-bit, no infinities) widen exactly, subnormals and infinities included.
// Between a file and hi alone of one type, the bits are copied.
// Both directions are exact where the destination can hold the value. Same bits in every backend.
namespace strata::kernels {

struct ConvertIn {
  DType dtype = DType::kF32;
  DType weights = DType::kBF16;  // of hi where there is no lo
  int64_t count = 0;
  const void* src = nullptr;
  float* master = nullptr;
  uint16_t* hi = nullptr;
  uint16_t* lo = nullptr;
};

struct ConvertOut {
  DType dtype = DType::kF32;
  DType weights = DType::kBF16;  // of hi where there is no lo
  int64_t count = 0;
  const float* master = nullptr;
  const uint16_t* hi = nullptr;
  const uint16_t* lo = nullptr;
  void* dst = nullptr;
};

}  // namespace strata::kernels
