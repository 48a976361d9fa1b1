// SPDX-License-Identifier: Apache-2.0
// The functions of cuBLASLt over the fake device. Descriptors, alignments and scratch are checked
// as strictly as the library may; products are plain loops that sum in f32.
#include <cublasLt.h>

#include <cstring>

#include "kernels/typed.h"
#include "tests/fake_cuda/fake_device.h"

namespace {

using namespace fake_cuda;  // NOLINT: the functions below are outside of any namespace

constexpr uint64_t kMagic = 0x66616b6564657363;

// What the opaque structs hold.
struct Layout {
  uint64_t magic;
  int64_t rows, cols, stride, batch_stride;
  int32_t batches;
  cudaDataType type;
};
struct Operation {
  uint64_t magic;
  cublasOperation_t a, b;
};
struct Preference {
  uint64_t magic;
  uint64_t workspace_bytes;
  uint32_t schemes;
  uint32_t a, b, c, d;  // alignments
};
struct Algorithm {
  uint64_t magic;
  uint64_t workspace_bytes;
  uint32_t a, b, c, d;
};
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(Operation) <= sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

template <typename Held, typename Opaque>
Held& held_in(Opaque* opaque) {
  return *reinterpret_cast<Held*>(opaque);
}
template <typename Held, typename Opaque>
const Held& held_in(const Opaque* opaque) {
  return *reinterpret_cast<const Held*>(opaque);
}

template <typename Value>
cublasStatus_t assign(Value& field, const void* value, size_t bytes) {
  if (bytes != sizeof(field)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

strata::DType type_of(cudaDataType type) {
  if (type == CUDA_R_32F) return strata::DType::kF32;
  return type == CUDA_R_16BF ? strata::DType::kBF16 : strata::DType::kF16;
}
float load(const void* data, cudaDataType type, int64_t at) {
  return strata::kernels::load(type_of(type), data, at);
}
void store(void* data, cudaDataType type, int64_t at, float value) {
  strata::kernels::store(strata::kernels::Interior(data, type_of(type)), at, value);
}

// Column-major: element (row, col) of op(matrix).
float element(const void* data, const Layout& layout, bool transposed, int64_t batch, int64_t row,
              int64_t col) {
  const int64_t at = transposed ? row * layout.stride + col : col * layout.stride + row;
  return load(data, layout.type, batch * layout.batch_stride + at);
}

struct Product {
  Operation operation;
  Layout a, b, d;
  const void *a_data, *b_data;
  void* d_data;
  float alpha, beta;

  int64_t m() const { return operation.a == CUBLAS_OP_T ? a.cols : a.rows; }
  int64_t n() const { return operation.b == CUBLAS_OP_T ? b.rows : b.cols; }
  int64_t k() const { return operation.a == CUBLAS_OP_T ? a.rows : a.cols; }
  bool fits() const {
    const int64_t other_k = operation.b == CUBLAS_OP_T ? b.cols : b.rows;
    return k() == other_k && d.rows == m() && d.cols == n() && a.batches == b.batches &&
           a.batches == d.batches && a.type == b.type;
  }

  void run() const {
    std::vector<float> left(static_cast<size_t>(m() * k()));
    std::vector<float> sums(static_cast<size_t>(m()));
    for (int64_t batch = 0; batch < d.batches; ++batch) {
      for (int64_t i = 0; i < k(); ++i) {
        for (int64_t row = 0; row < m(); ++row) {
          left[static_cast<size_t>(i * m() + row)] =
              element(a_data, a, operation.a == CUBLAS_OP_T, batch, row, i);
        }
      }
      for (int64_t col = 0; col < n(); ++col) run_column(left, sums, batch, col);
    }
  }

  void run_column(const std::vector<float>& left, std::vector<float>& sums, int64_t batch,
                  int64_t col) const {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t i = 0; i < k(); ++i) {
      const float right = element(b_data, b, operation.b == CUBLAS_OP_T, batch, i, col);
      const float* column = left.data() + i * m();
      for (size_t row = 0; row < sums.size(); ++row) sums[row] += column[row] * right;
    }
    for (int64_t row = 0; row < m(); ++row) {
      const int64_t at = batch * d.batch_stride + col * d.stride + row;
      const float before = beta == 0 ? 0.0f : beta * load(d_data, d.type, at);
      store(d_data, d.type, at, alpha * sums[static_cast<size_t>(row)] + before);
    }
  }
};

bool is_aligned(const void* data, uint32_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion() {
  return 0;
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
                                                  : "CUBLAS_STATUS_INVALID_VALUE";
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t stride) {
  held_in<Layout>(layout) = {
      kMagic, static_cast<int64_t>(rows), static_cast<int64_t>(cols), stride, 0, 1, type};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  Layout& held = held_in<Layout>(layout);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return assign(held.batches, value, bytes);
  return assign(held.batch_stride, value, bytes);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t operation, size_t,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  // Full f32, without TF32.
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
  held_in<Operation>(operation) = {kMagic, CUBLAS_OP_N, CUBLAS_OP_N};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  Operation& held = held_in<Operation>(operation);
  return assign(attribute == CUBLASLT_MATMUL_DESC_TRANSA ? held.a : held.b, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     size_t) {
  held_in<Preference>(preference) = {
      kMagic, 0, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_MASK), 256, 256, 256, 256};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  Preference& held = held_in<Preference>(preference);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return assign(held.workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return assign(held.schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return assign(held.a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return assign(held.b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return assign(held.c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return assign(held.d, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

// An algorithm that needs all that the preference allows. None with atomic sums.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  const Preference& held = held_in<Preference>(preference);
  if (held_in<Operation>(operation).magic != kMagic || held.magic != kMagic || wanted < 1) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *found = 0;
  const bool atomic = (held.schemes & CUBLASLT_REDUCTION_SCHEME_INPLACE) != 0;
  if (atomic || Device::instance().faults.fails("algorithm")) return CUBLAS_STATUS_SUCCESS;
  *found = 1;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  results[0].workspaceSize = held.workspace_bytes;
  held_in<Algorithm>(&results[0].algo) = {kMagic, held.workspace_bytes, held.a, held.b, held.c,
                                          held.d};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  const Algorithm& held = held_in<Algorithm>(algorithm);
  const Product product = {held_in<Operation>(operation),
                           held_in<Layout>(a_layout),
                           held_in<Layout>(b_layout),
                           held_in<Layout>(d_layout),
                           a,
                           b,
                           d,
                           *static_cast<const float*>(alpha),
                           *static_cast<const float*>(beta)};
  const bool aligned = is_aligned(a, held.a) && is_aligned(b, held.b) && is_aligned(c, held.c) &&
                       is_aligned(d, held.d) && workspace != nullptr;
  const bool sound = held.magic == kMagic && product.fits() && c == d && aligned &&
                     workspace_bytes >= held.workspace_bytes;
  if (!sound) return CUBLAS_STATUS_INVALID_VALUE;
  if (Device::instance().faults.fails("product")) return CUBLAS_STATUS_EXECUTION_FAILED;
  return launch(stream, [product] { product.run(); }) ? CUBLAS_STATUS_SUCCESS
                                                      : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
