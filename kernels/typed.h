// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "kernels/interior.h"

// Scalar access to arrays whose element type is known at run time (f32, bf16 or f16), and
// strides with the "0 means dense" convention of the op headers.
namespace strata::kernels {

inline float load(DType type, const void* data, int64_t index) {
  if (type == DType::kF32) return static_cast<const float*>(data)[index];
  const uint16_t bits = static_cast<const uint16_t*>(data)[index];
  return type == DType::kBF16 ? from_bf16(bits) : from_f16(bits);
}

inline void store(DType type, void* data, int64_t index, float value) {
  if (type == DType::kF32) {
    static_cast<float*>(data)[index] = value;
  } else {
    static_cast<uint16_t*>(data)[index] = type == DType::kBF16 ? to_bf16(value) : to_f16(value);
  }
}

inline float load(ConstInterior from, int64_t index) {
  return load(from.dtype, from.data, index);
}

inline void store(Interior to, int64_t index, float value) {
  if (to.dtype != DType::kBF16) return store(to.dtype, to.data, index, value);
  static_cast<uint16_t*>(to.data)[index] = nearest_bf16(value);
}

// Whether each row has a position: its own, or its place in a whole sequence.
inline bool has_positions(int64_t rows, int64_t length, const int32_t* positions) {
  return rows > 0 && length > 0 && (positions != nullptr || rows % length == 0);
}

// A type of weights and of activations at the boundary of segments.
inline bool is_weight_type(DType type) {
  return type == DType::kF32 || type == DType::kBF16 || type == DType::kF16;
}

inline int64_t stride_or(int64_t stride, int64_t dense) {
  return stride == 0 ? dense : stride;
}

constexpr int64_t ceil_div(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}
constexpr int64_t round_up(int64_t value, int64_t to) {
  return ceil_div(value, to) * to;
}

}  // namespace strata::kernels
