// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "engine/base/check.h"
#include "engine/base/dtype.h"

// I in the headers of ops: the element type of tensors inside a segment, f32, bf16 or f16, from the
// device's description. A store as bf16 or f16 rounds once, to nearest even.
namespace strata::kernels {

// Points to elements of type `dtype`. Converts from a pointer to float, and to one: that check
// fails when the elements are not f32.
template <typename Float>
struct InteriorPointer {
  using Void = std::conditional_t<std::is_const_v<Float>, const void, void>;

  Void* data = nullptr;
  DType dtype = DType::kF32;

  InteriorPointer() = default;
  InteriorPointer(std::nullptr_t) {}
  InteriorPointer(Float* floats) : data(floats) {}
  InteriorPointer(Void* data_in, DType dtype_in) : data(data_in), dtype(dtype_in) {}

  operator InteriorPointer<const float>() const requires(!std::is_const_v<Float>) {
    return {data, dtype};
  }
  operator Float*() const {
    STRATA_CHECK(dtype == DType::kF32);
    return static_cast<Float*>(data);
  }
  explicit operator bool() const { return data != nullptr; }
  bool operator==(std::nullptr_t) const { return data == nullptr; }

  InteriorPointer operator+(int64_t elements) const {
    using Byte = std::conditional_t<std::is_const_v<Float>, const std::byte, std::byte>;
    return {static_cast<Byte*>(data) + elements * bytes_of(dtype), dtype};
  }
};

using Interior = InteriorPointer<float>;
using ConstInterior = InteriorPointer<const float>;

}  // namespace strata::kernels
