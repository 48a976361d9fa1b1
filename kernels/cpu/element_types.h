// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/check.h"
#include "kernels/typed.h"

// The types that weights and boundary activations have in code for one element type: float,
// uint16_t for bf16, and Half.
namespace strata::kernels::cpu {

struct Half {
  uint16_t bits;
};

inline const void* element_of(DType type, const void* data, int64_t index) {
  return static_cast<const char*>(data) + index * bytes_of(type);
}
inline void* element_of(DType type, void* data, int64_t index) {
  return static_cast<char*>(data) + index * bytes_of(type);
}

// Calls body with a value of the type.
template <typename Body>
void with_weight_type(DType type, const Body& body) {
  STRATA_CHECK(is_weight_type(type));
  if (type == DType::kF32) return body(float{});
  if (type == DType::kBF16) return body(uint16_t{});
  body(Half{});
}

}  // namespace strata::kernels::cpu
