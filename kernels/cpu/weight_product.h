// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/base/dtype.h"
#include "kernels/cpu/product.h"

namespace strata::kernels::cpu {

// The largest tile of a product with weights.
constexpr int64_t kTileRows = 256;
constexpr int64_t kTileCols = 256;

constexpr int64_t kDepth = 2048;  // of a widened block
constexpr int64_t kPad = 16;      // spreads the rows of a widened block over the cache's sets
constexpr int64_t kWidenedElements = (kTileCols + kPad) * kDepth;

// Scratch of run_weight_product().
constexpr int64_t weight_product_bytes() {
  return kProductScratchBytes + (kWidenedElements + kTileRows * kTileCols) * 4;
}

// Runs run_product() on a tile of activations times weights of type `dtype` (product.b is ignored).
// bf16 and f16 weights are widened in the scratch, one block of the summed dimension at a time.
void run_weight_product(const Product& product, DType dtype, const void* weights,
                        std::byte* scratch);

}  // namespace strata::kernels::cpu
