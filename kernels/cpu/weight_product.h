// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/base/dtype.h"
#include "kernels/cpu/product.h"

namespace strata::kernels::cpu {

// Tiles of products with weights are at most this.
constexpr int64_t kTileRows = 256;
constexpr int64_t kTileCols = 256;

// Scratch of run_weight_product().
int64_t weight_product_bytes();

// run_product() of a tile of activations times weights of type `dtype` (product.b is ignored). bf16
// weights are widened into the scratch, a block of the summed dimension at a time.
void run_weight_product(const Product& product, DType dtype, const void* weights,
                        std::byte* scratch);

}  // namespace strata::kernels::cpu
