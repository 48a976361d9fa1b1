// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/ops.h"
#include "kernels/cuda/ops/elementwise.h"
#include "kernels/cuda/ops/embedding.h"

namespace strata::kernels::cuda {

STRATA_CUDA_OP(add_residual, AddResidual)
STRATA_CUDA_OP(add, Add)
STRATA_CUDA_OP(fill, Fill)
STRATA_CUDA_OP(soft_cap, SoftCap)
STRATA_CUDA_OP(cast, Cast)
STRATA_CUDA_OP(ordered_sum, OrderedSum)
STRATA_CUDA_OP(gather_rows, GatherRows)
STRATA_CUDA_OP(copy_rows, CopyRows)
STRATA_CUDA_OP(embedding_forward, EmbeddingForward)
STRATA_CUDA_OP(embedding_backward, EmbeddingBackward)
STRATA_CUDA_OP(position_forward, PositionForward)
STRATA_CUDA_OP(position_backward, PositionBackward)

}  // namespace strata::kernels::cuda
