// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/dense_product.h"

#include <algorithm>
#include <cstring>

#include "engine/base/check.h"
#include "kernels/cpu/rows.h"
#include "kernels/typed.h"

namespace strata::kernels::cpu {
namespace {

constexpr int64_t kBlockElements = int64_t{512} << 10;  // of a copied operand

// A stored matrix: `rows` rows of `cols` elements.
struct Stored {
  DType dtype;
  const void* data;
  int64_t rows;
  int64_t cols;
  int64_t stride;
  bool dense() const { return dtype == DType::kF32 && (stride == cols || rows == 1); }
};

Stored left_of(const Product& p) {
  return p.a_transposed ? Stored{DType::kF32, p.a, p.k, p.m, p.lda}
                        : Stored{DType::kF32, p.a, p.m, p.k, p.lda};
}

Stored right_of(const Product& p, DType dtype, const void* b) {
  return p.b_transposed ? Stored{dtype, b, p.n, p.k, p.ldb} : Stored{dtype, b, p.k, p.n, p.ldb};
}

// The part of [first, first + count) of the summed dimension, which is down the rows or along them.
Stored part_of(const Stored& whole, bool along_rows, int64_t first, int64_t count) {
  Stored part = whole;
  (along_rows ? part.rows : part.cols) = count;
  part.data = static_cast<const char*>(whole.data) +
              first * (along_rows ? whole.stride : 1) * bytes_of(whole.dtype);
  return part;
}

// The matrix itself where it is dense, otherwise a dense f32 copy.
const float* densify(const Stored& from, float* copy) {
  if (from.dense()) return static_cast<const float*>(from.data);
  for (int64_t row = 0; row < from.rows; ++row) {
    float* to = copy + row * from.cols;
    if (from.dtype == DType::kF32) {
      std::memcpy(to, static_cast<const float*>(from.data) + row * from.stride,
                  static_cast<size_t>(from.cols) * sizeof(float));
    } else {
      widen(static_cast<const uint16_t*>(from.data) + row * from.stride, to, from.cols);
    }
  }
  return copy;
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

int64_t dense_product_bytes() {
  return kProductScratchBytes + (2 * kBlockElements + kTileElements) * 4;
}

void run_dense_product(const Product& product, DType b_dtype, const void* b, std::byte* scratch) {
  STRATA_CHECK(product.m * product.n <= kTileElements);
  STRATA_CHECK(std::max(product.m, product.n) <= kTileEdge);
  float* left_copy = reinterpret_cast<float*>(scratch + kProductScratchBytes);
  float* right_copy = left_copy + kBlockElements;
  const Stored left = left_of(product);
  const Stored right = right_of(product, b_dtype, b);
  Product part = product;
  const bool direct = product.ldc == product.n || product.m == 1;
  if (!direct) {
    part.c = right_copy + kBlockElements;
    part.accumulate = false;
  }
  part.ldc = product.n;
  const int64_t depth = left.dense() && right.dense()
                            ? product.k
                            : kBlockElements / std::max({product.m, product.n, int64_t{256}});
  for (int64_t first = 0; first < product.k; first += depth) {
    part.k = std::min(depth, product.k - first);
    const Stored a = part_of(left, product.a_transposed, first, part.k);
    const Stored w = part_of(right, !product.b_transposed, first, part.k);
    part.a = densify(a, left_copy);
    part.lda = a.cols;
    part.b = densify(w, right_copy);
    part.ldb = w.cols;
    run_product(part, scratch);
    part.accumulate = true;
  }
  if (!direct) put(part.c, product);
}

}  // namespace strata::kernels::cpu
