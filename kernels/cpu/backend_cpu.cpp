// SPDX-License-Identifier: Apache-2.0
#include "kernels/backend.h"
#include "kernels/cpu/ops.h"
#include "kernels/typed.h"

namespace strata::kernels {

int64_t workspace_bytes(const RmsNormBackward& op, int threads) {
  return ceil_div(op.rows, 64) * op.cols * 4;
}
int64_t cross_entropy_chunk_rows(int64_t vocabulary) {
  return vocabulary > 65536 ? 128 : 256;
}
int64_t workspace_bytes(const LinearCrossEntropy& op, int threads) {
  return cross_entropy_chunk_rows(op.vocabulary) * (op.vocabulary * 4 + 64) + threads * 4194304;
}
int64_t workspace_bytes(const SumSquares& op, int threads) {
  return ceil_div(op.count, kSumSquaresBlock) * 8;
}

const Backend& cpu_backend() {
  static const Backend kBackend = [] {
    Backend b = ref_backend();
    b.name = "cpu";
    b.matmul_forward = cpu::matmul_forward;
    b.matmul_input = cpu::matmul_input;
    b.matmul_weight = cpu::matmul_weight;
    b.add_residual = cpu::add_residual;
    b.add = cpu::add;
    b.fill = cpu::fill;
    b.cast = cpu::cast;
    b.attention_forward = cpu::attention_forward;
    b.attention_backward = cpu::attention_backward;
    return b;
  }();
  return kBackend;
}

}  // namespace strata::kernels
