// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/ops.h"
#include "kernels/cuda/ops/norm.h"
#include "kernels/cuda/ops/layer_norm.h"

namespace strata::kernels::cuda {

STRATA_CUDA_OP(rms_norm_forward, RmsNormForward)
STRATA_CUDA_OP(rms_norm_backward, RmsNormBackward)
STRATA_CUDA_OP(layer_norm_forward, LayerNormForward)
STRATA_CUDA_OP(layer_norm_backward, LayerNormBackward)

}  // namespace strata::kernels::cuda
