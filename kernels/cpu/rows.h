// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Vectorized loops over contiguous elements on the calling thread, from which ops are built.
namespace strata::kernels::cpu {

constexpr int64_t kShareRows = 32;  // rows of a block with its own share: see row_shares.h

// to[i] = from_bf16(from[i])
void widen(const uint16_t* from, float* to, int64_t count);

// y[i] += x[i]
void add_to(const float* x, float* y, int64_t count);

// y[i] += from_bf16(x[i])
void add_widened_to(const uint16_t* x, float* y, int64_t count);

// y[i] += factor * x[i], in two roundings
void add_scaled_to(const float* x, float factor, float* y, int64_t count);
void add_scaled_to(const uint16_t* x, float factor, float* y, int64_t count);

// y[i] = factor * x[i]
void scale_to(const float* x, float factor, float* y, int64_t count);
void scale_to(const uint16_t* x, float factor, uint16_t* y, int64_t count);

}  // namespace strata::kernels::cpu
