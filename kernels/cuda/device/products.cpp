// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device/products.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "kernels/cuda/device/runtime.h"
#include "kernels/cuda/sizes.h"

namespace strata::kernels::cuda {
namespace {

cudaDataType_t type_of(DType type) {
  return type == DType::kF32 ? CUDA_R_32F : type == DType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
}

// The largest power of two, up to 256, that divides the address and all distances from it.
uint32_t alignment_of(const void* data, DType type, int64_t stride, int64_t batch_stride) {
  const auto bits = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(data)) |
                    static_cast<uint64_t>((stride | batch_stride) * bytes_of(type)) | 256;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

std::string name_of(const ProductKey& key) {
  return fmt::format("product {}x{}x{} times {}, {} to {}", key.m, key.n, key.k, key.batches,
                     strata::name_of(key.in), strata::name_of(key.out));
}

// A row-major matrix [rows, cols] is a column-major one [cols, rows].
struct Layout {
  Layout(DType type, int64_t rows, int64_t cols, int64_t stride, int64_t batches,
         int64_t batch_stride) {
    const auto count = static_cast<int32_t>(batches);
    check(cublasLtMatrixLayoutInit(&opaque, type_of(type), static_cast<uint64_t>(cols),
                                   static_cast<uint64_t>(rows), stride),
          "layout of a matrix");
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count);
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batch_stride);
  }
  template <typename Value>
  void set(cublasLtMatrixLayoutAttribute_t attribute, const Value& value) {
    check(cublasLtMatrixLayoutSetAttribute(&opaque, attribute, &value, sizeof(value)),
          "layout of a matrix");
  }
  cublasLtMatrixLayoutOpaque_t opaque;
};

struct Operation {
  Operation(bool first_transposed, bool second_transposed) {
    check(cublasLtMatmulDescInit(&opaque, CUBLAS_COMPUTE_32F, CUDA_R_32F), "product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, first_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, second_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  }
  void set(cublasLtMatmulDescAttributes_t attribute, cublasOperation_t value) {
    check(cublasLtMatmulDescSetAttribute(&opaque, attribute, &value, sizeof(value)), "product");
  }
  cublasLtMatmulDescOpaque_t opaque;
};

struct Preference {
  explicit Preference(const ProductKey& key) {
    check(cublasLtMatmulPreferenceInit(&opaque), "choice of a product");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kLibraryBytes));
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_MASK & ~CUBLASLT_REDUCTION_SCHEME_INPLACE));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b_alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a_alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.c_alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.c_alignment);
  }
  template <typename Value>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulPreferenceSetAttribute(&opaque, attribute, &value, sizeof(value)),
          "choice of a product");
  }
  cublasLtMatmulPreferenceOpaque_t opaque;
};

}  // namespace

ProductKey key_of(const Product& p) {
  const auto alignment = [](const auto& operand) {
    return alignment_of(operand.data.data, operand.data.dtype, operand.stride,
                        operand.batch_stride);
  };
  return {.m = p.m,
          .n = p.n,
          .k = p.k,
          .batches = p.batches,
          .a_stride = p.a.stride,
          .b_stride = p.b.stride,
          .c_stride = p.c.stride,
          .in = p.a.data.dtype,
          .out = p.c.data.dtype,
          .a_transposed = p.a.transposed,
          .b_transposed = p.b.transposed,
          .accumulate = p.accumulate,
          .a_alignment = alignment(p.a),
          .b_alignment = alignment(p.b),
          .c_alignment = alignment(p.c)};
}

Products::Products(int device) {
  const OnDevice scope(device, "start of cuBLASLt");
  check(cublasLtCreate(&handle_), "start of cuBLASLt");
}

Products::~Products() {
  cublasLtDestroy(handle_);
}

cublasLtMatmulAlgo_t Products::algorithm_of(const ProductKey& key, cublasLtMatmulDesc_t operation,
                                            const cublasLtMatrixLayout_t (&layouts)[3]) {
  const std::lock_guard lock(mu_);
  const auto known = algorithms_.find(key);
  if (known != algorithms_.end()) return known->second;
  Preference preference(key);
  cublasLtMatmulHeuristicResult_t result = {};
  int count = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle_, operation, layouts[0], layouts[1], layouts[2],
                                       layouts[2], &preference.opaque, 1, &result, &count),
        name_of(key));
  if (count == 0) {
    throw Error(ErrorCode::kDevice,
                fmt::format("cuda: {}: cuBLASLt has no algorithm without atomic sums for it (use "
                            "another micro-batch or sequence length)",
                            name_of(key)));
  }
  algorithms_.emplace(key, result.algo);
  return result.algo;
}

// In column-major terms, c^T = b^T a^T: the first operand is b.
void Products::run(cudaStream_t stream, const Product& p) {
  STRATA_CHECK(p.a.data.dtype == p.b.data.dtype && p.workspace.bytes >= kLibraryBytes);
  STRATA_CHECK(reinterpret_cast<uintptr_t>(p.workspace.data) % kWorkspaceAlignment == 0);
  STRATA_CHECK(p.c.data.dtype == DType::kF32 || p.c.data.dtype == p.a.data.dtype);
  const ProductKey key = key_of(p);
  Operation operation(p.b.transposed, p.a.transposed);
  Layout b(key.in, p.b.transposed ? p.n : p.k, p.b.transposed ? p.k : p.n, p.b.stride, p.batches,
           p.b.batch_stride);
  Layout a(key.in, p.a.transposed ? p.k : p.m, p.a.transposed ? p.m : p.k, p.a.stride, p.batches,
           p.a.batch_stride);
  Layout c(key.out, p.m, p.n, p.c.stride, p.batches, p.c.batch_stride);
  const cublasLtMatmulAlgo_t algorithm =
      algorithm_of(key, &operation.opaque, {&b.opaque, &a.opaque, &c.opaque});
  const float one = 1.0f, before = p.accumulate ? 1.0f : 0.0f;
  check(cublasLtMatmul(handle_, &operation.opaque, &one, p.b.data.data, &b.opaque, p.a.data.data,
                       &a.opaque, &before, p.c.data.data, &c.opaque, p.c.data.data, &c.opaque,
                       &algorithm, p.workspace.data, static_cast<size_t>(kLibraryBytes), stream),
        name_of(key));
}

}  // namespace strata::kernels::cuda
