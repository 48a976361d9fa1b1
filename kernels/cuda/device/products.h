// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>

#include "kernels/cuda/ops/product.h"

namespace strata::kernels::cuda {

// What the choice of a product's algorithm depends on.
struct ProductKey {
  int64_t m, n, k, batches, a_stride, b_stride, c_stride;
  DType in, out;
  bool a_transposed, b_transposed, accumulate;
  uint32_t a_alignment, b_alignment, c_alignment;
  auto operator<=>(const ProductKey&) const = default;
};
ProductKey key_of(const Product& product);

// Products by cuBLASLt. The algorithm of a product is chosen once, by its key alone and for
// kLibraryBytes of scratch, among those that use no atomic sums: reruns give the same bits.
// Products of f32 are in full f32, without TF32.
//
// Threads: any. Failure: Error{kDevice}. Memory: the library's handle, and an entry for each key; a
// product whose key is known allocates nothing.
class Products {
 public:
  explicit Products(int device);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  void run(cudaStream_t stream, const Product& product);

 private:
  cublasLtMatmulAlgo_t algorithm_of(const ProductKey& key, cublasLtMatmulDesc_t operation,
                                    const cublasLtMatrixLayout_t (&layouts)[3]);

  cublasLtHandle_t handle_ = nullptr;  // Constant after construction
  std::mutex mu_;
  std::map<ProductKey, cublasLtMatmulAlgo_t> algorithms_;  // Guarded by mu_
};

}  // namespace strata::kernels::cuda
