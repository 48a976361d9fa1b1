// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/base/dtype.h"
#include "kernels/cpu/product.h"

namespace strata::kernels::cpu {

// Tiles are at most this: m * n elements of the result, and either side at most kTileEdge.
constexpr int64_t kTileElements = int64_t{256} << 10;
constexpr int64_t kTileEdge = 1024;

// Scratch of run_dense_product().
int64_t dense_product_bytes();

// run_product() of a tile of larger matrices, with `b` given as an array of `b_dtype` (product.b is
// ignored). oneDNN's fast path wants every operand dense, so strided ones are copied, bf16 ones
// widened, a block of the summed dimension at a time; the copies are a few percent of the product.
void run_dense_product(const Product& product, DType b_dtype, const void* b, std::byte* scratch);

}  // namespace strata::kernels::cpu
