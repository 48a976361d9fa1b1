// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/weight_product.h"

#include <algorithm>
#include <cstring>

#include "engine/base/check.h"
#include "kernels/cpu/rows.h"

namespace strata::kernels::cpu {
namespace {

// Widens the block of 16-bit weights that belongs to [first, first + product.k) of the summed
// dimension.
void widen_block(Product& product, DType dtype, const void* weights, int64_t stride, int64_t first,
                 float* to) {
  const int64_t rows = product.b_transposed ? product.n : product.k;
  const int64_t cols = product.b_transposed ? product.k : product.n;
  const int64_t begin = product.b_transposed ? first : first * stride;
  product.ldb = product.b_transposed ? cols : cols + kPad;
  product.b = to;
  for (int64_t row = 0; row < rows; ++row) {
    widen(dtype, element_of(dtype, weights, begin + row * stride), to + row * product.ldb, cols);
  }
}

void run_blocks(Product product, DType dtype, const void* weights, std::byte* scratch) {
  if (dtype == DType::kF32) {
    product.b = static_cast<const float*>(weights);
    run_product(product, scratch);
    return;
  }
  float* widened = reinterpret_cast<float*>(scratch + kProductScratchBytes);
  const float* a = product.a;
  const int64_t depth = product.k;
  const int64_t stride = product.ldb;
  for (int64_t first = 0; first < depth; first += kDepth) {
    product.k = std::min(kDepth, depth - first);
    product.a = a + first;
    widen_block(product, dtype, weights, stride, first, widened);
    run_product(product, scratch);
    product.accumulate = true;
  }
}

void put(const float* tile, const Product& p) {
  for (int64_t row = 0; row < p.m; ++row) {
    if (p.accumulate) {
      add_to(tile + row * p.n, p.c + row * p.ldc, p.n);
    } else {
      std::memcpy(p.c + row * p.ldc, tile + row * p.n, static_cast<size_t>(p.n) * sizeof(float));
    }
  }
}

}  // namespace

void run_weight_product(const Product& product, DType dtype, const void* weights,
                        std::byte* scratch) {
  STRATA_CHECK(product.m <= kTileRows && product.n <= kTileCols && !product.a_transposed);
  if (!product.b_transposed || product.ldc == product.n) {
    run_blocks(product, dtype, weights, scratch);
    return;
  }
  // oneDNN 2.6.3 has a fast path for transposed weights only when the result is dense (otherwise it
  // reaches 0.9 of that rate), so the result is a dense tile that is copied out.
  Product dense = product;
  dense.c = reinterpret_cast<float*>(scratch + kProductScratchBytes) + kWidenedElements;
  dense.ldc = product.n;
  dense.accumulate = false;
  run_blocks(dense, dtype, weights, scratch);
  put(dense.c, product);
}

}  // namespace strata::kernels::cpu
