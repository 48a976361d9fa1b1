// SPDX-License-Identifier: Apache-2.0
#include "kernels/backend.h"
#include "kernels/typed.h"

namespace strata::kernels {

int64_t workspace_bytes(const MatMulForward& op, int threads) {
  return op.dtype == DType::kF32 ? threads * 1048576 : threads * (1048576 + op.inputs * 512 * 4);
}
int64_t workspace_bytes(const MatMulInput& op, int threads) {
  return op.dtype == DType::kF32 ? threads * 1048576 : threads * (1048576 + op.outputs * 512 * 4);
}
int64_t workspace_bytes(const MatMulWeight& op, int threads) {
  return threads * 1048576;
}
int64_t workspace_bytes(const RmsNormBackward& op, int threads) {
  return ceil_div(op.rows, 64) * op.cols * 4;
}
int64_t workspace_bytes(const AttentionForward& op, int threads) {
  return threads * 1048576;
}
int64_t workspace_bytes(const AttentionBackward& op, int threads) {
  return threads * 1048576;
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
  return ref_backend();
}

}  // namespace strata::kernels
