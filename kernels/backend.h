// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/cached_attention.h"
#include "kernels/convert.h"
#include "kernels/cross_entropy.h"
#include "kernels/description.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gather_rows.h"
#include "kernels/glu.h"
#include "kernels/layer_norm.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/ordered_sum.h"
#include "kernels/position.h"
#include "kernels/rope.h"
#include "kernels/sum_squares.h"

// Every op: its name and its struct. Tables of backends and declarations are made from this list.
#define STRATA_KERNEL_OPS(OP)                  \
  OP(matmul_forward, MatMulForward)            \
  OP(matmul_input, MatMulInput)                \
  OP(matmul_weight, MatMulWeight)              \
  OP(rms_norm_forward, RmsNormForward)         \
  OP(rms_norm_backward, RmsNormBackward)       \
  OP(layer_norm_forward, LayerNormForward)     \
  OP(layer_norm_backward, LayerNormBackward)   \
  OP(rope, Rope)                               \
  OP(attention_forward, AttentionForward)      \
  OP(attention_backward, AttentionBackward)    \
  OP(cached_attention, CachedAttention)        \
  OP(glu_forward, GluForward)                  \
  OP(glu_backward, GluBackward)                \
  OP(embedding_forward, EmbeddingForward)      \
  OP(embedding_backward, EmbeddingBackward)    \
  OP(position_forward, PositionForward)        \
  OP(position_backward, PositionBackward)      \
  OP(linear_cross_entropy, LinearCrossEntropy) \
  OP(gather_rows, GatherRows)                  \
  OP(copy_rows, CopyRows)                      \
  OP(add_residual, AddResidual)                \
  OP(add, Add)                                 \
  OP(fill, Fill)                               \
  OP(soft_cap, SoftCap)                        \
  OP(cast, Cast)                               \
  OP(ordered_sum, OrderedSum)                  \
  OP(adamw, AdamW)                             \
  OP(sum_squares, SumSquares)

namespace strata::kernels {

// One implementation of every op; the contract of an op is in its header. `Where` is empty for ops
// on host memory, which the call completes in the calling thread's Parallel, and Queue& for ops
// that are issued to a queue of a device (device.h).
template <typename... Where>
struct OpTable {
  const char* name;
#define STRATA_OP(member, Op) void (*member)(Where..., const Op&);
  STRATA_KERNEL_OPS(STRATA_OP)
#undef STRATA_OP
};

// The table of the host. Only the host converts elements of files.
struct Backend : OpTable<> {
  void (*convert_in)(const ConvertIn&);
  void (*convert_out)(const ConvertOut&);
  KernelSet kernels;
};

// Plain scalar loops: the specification. One thread.
const Backend& ref_backend();

// SIMD for this machine's instruction set, oneDNN products, on the threads of the caller's
// Parallel.
const Backend& cpu_backend();

// What the bits of the cpu backend's results depend on beside ops and their shapes: instruction
// sets of this machine and the version of oneDNN, "AVX3, oneDNN 2.6.3 with AVX-512".
std::string cpu_arithmetic();

}  // namespace strata::kernels
