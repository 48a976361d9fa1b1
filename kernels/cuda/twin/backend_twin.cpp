// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/twin/backend_twin.h"

#include "kernels/cuda/ops/all.h"
#include "kernels/cuda/twin/host_launch.h"

namespace strata::kernels {
namespace cuda {
namespace {

ConstInterior matrix_of(const Operand& from, int64_t batch) {
  return from.data + batch * from.batch_stride;
}

float element_of(ConstInterior matrix, const Operand& from, int64_t row, int64_t col) {
  return load(matrix, from.transposed ? col * from.stride + row : row * from.stride + col);
}

#define STRATA_OP(member, Op)           \
  void member##_on_host(const Op& op) { \
    const HostLaunch on;                \
    member(on, op);                     \
  }
STRATA_KERNEL_OPS(STRATA_OP)
#undef STRATA_OP

}  // namespace

void HostLaunch::product(const Product& p) const {
  STRATA_CHECK(p.a.data.dtype == p.b.data.dtype && p.workspace.bytes >= kLibraryBytes);
  STRATA_CHECK(p.c.data.dtype == DType::kF32 || p.c.data.dtype == p.a.data.dtype);
  for (int64_t batch = 0; batch < p.batches; ++batch) {
    const ConstInterior a = matrix_of(p.a, batch), b = matrix_of(p.b, batch);
    const Interior c = p.c.data + batch * p.c.batch_stride;
    for (int64_t row = 0; row < p.m; ++row) {
      for (int64_t col = 0; col < p.n; ++col) {
        const int64_t at = row * p.c.stride + col;
        double sum = p.accumulate ? load(c, at) : 0.0;
        for (int64_t i = 0; i < p.k; ++i) {
          sum += double{element_of(a, p.a, row, i)} * element_of(b, p.b, i, col);
        }
        store(c, at, static_cast<float>(sum));
      }
    }
  }
}

}  // namespace cuda

Backend make_cuda_twin(const Backend& files) {
  return {
      {.name = "cuda twin",
#define STRATA_OP(member, Op) .member = cuda::member##_on_host,
       STRATA_KERNEL_OPS(STRATA_OP)
#undef STRATA_OP
      },
      files.convert_in,
      files.convert_out,
      KernelSet::kCuda,
  };
}

}  // namespace strata::kernels
