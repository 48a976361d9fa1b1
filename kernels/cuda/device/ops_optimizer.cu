// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/ops.h"
#include "kernels/cuda/ops/optimizer.h"

namespace strata::kernels::cuda {

STRATA_CUDA_OP(adamw, AdamW)
STRATA_CUDA_OP(sum_squares, SumSquares)

}  // namespace strata::kernels::cuda
