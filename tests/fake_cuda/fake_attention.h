// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "engine/base/dtype.h"

namespace fake_cuda {

// A tensor [B, heads, T, width], with the elements between two along each axis.
struct HeadsTensor {
  void* data = nullptr;
  strata::DType type = strata::DType::kF32;
  std::array<int64_t, 4> strides = {};
};

// Attention by plain loops with sums in f32, in the words of kernels/attention.h. A query sees
// `left` keys that end with its own, and `right` more.
struct Attention {
  int64_t batch = 0, heads = 0, kv_heads = 0, length = 0, head_size = 0;
  float scale = 1.0f;
  int64_t left = 0, right = 0;
  HeadsTensor q = {}, k = {}, v = {}, o = {}, lse = {}, d_o = {}, dq = {}, dk = {}, dv = {};

  void forward() const;
  void backward() const;
};

}  // namespace fake_cuda
