// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/ops.h"
#include "kernels/cuda/ops/glu.h"

namespace strata::kernels::cuda {

STRATA_CUDA_OP(glu_forward, GluForward)
STRATA_CUDA_OP(glu_backward, GluBackward)
STRATA_CUDA_OP(rope, Rope)

}  // namespace strata::kernels::cuda
