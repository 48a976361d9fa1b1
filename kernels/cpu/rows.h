// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cpu/element_types.h"

// Vectorized loops over contiguous elements on the calling thread, from which ops are built.
namespace strata::kernels::cpu {

constexpr int64_t kShareRows = 32;  // rows of a block with its own share: see row_shares.h

// to[i] = from[i]. Arrays given as void have elements of `type`, here and below.
void widen(DType type, const void* from, float* to, int64_t count);

// y[i] += x[i]
void add_to(const float* x, float* y, int64_t count);
void add_widened_to(DType type, const void* x, float* y, int64_t count);
void add_rounded_to(DType type, const void* x, void* y, int64_t count);

// y[i] += factor * x[i], in two roundings
void add_scaled_to(DType type, const void* x, float factor, float* y, int64_t count);

// y[i] = factor * x[i]
void scale_to(DType type, const void* x, float factor, void* y, int64_t count);

}  // namespace strata::kernels::cpu
