// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/ops.h"
#include "kernels/cuda/ops/attention.h"
#include "kernels/cuda/ops/cached_attention.h"

namespace strata::kernels::cuda {

STRATA_CUDA_OP(attention_forward, AttentionForward)
STRATA_CUDA_OP(attention_backward, AttentionBackward)
STRATA_CUDA_OP(cached_attention, CachedAttention)

}  // namespace strata::kernels::cuda
