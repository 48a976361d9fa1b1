// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/ops.h"
#include "kernels/cuda/ops/cross_entropy.h"
#include "kernels/cuda/ops/matmul.h"

namespace strata::kernels::cuda {

STRATA_CUDA_OP(matmul_forward, MatMulForward)
STRATA_CUDA_OP(matmul_input, MatMulInput)
STRATA_CUDA_OP(matmul_weight, MatMulWeight)
STRATA_CUDA_OP(linear_cross_entropy, LinearCrossEntropy)

}  // namespace strata::kernels::cuda
