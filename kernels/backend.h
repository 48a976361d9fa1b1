// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/adamw.h"
#include "kernels/attention.h"
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
#include "kernels/position.h"
#include "kernels/rope.h"
#include "kernels/sum_squares.h"

namespace strata::kernels {

// One implementation of every op; the contract of an op is in its header. `Where` is empty for ops
// on host memory, which the call completes in the calling thread's Parallel, and Queue& for ops
// that are issued to a queue of a device (device.h).
template <typename... Where>
struct OpTable {
  const char* name;
  void (*matmul_forward)(Where..., const MatMulForward&);
  void (*matmul_input)(Where..., const MatMulInput&);
  void (*matmul_weight)(Where..., const MatMulWeight&);
  void (*rms_norm_forward)(Where..., const RmsNormForward&);
  void (*rms_norm_backward)(Where..., const RmsNormBackward&);
  void (*layer_norm_forward)(Where..., const LayerNormForward&);
  void (*layer_norm_backward)(Where..., const LayerNormBackward&);
  void (*rope)(Where..., const Rope&);
  void (*attention_forward)(Where..., const AttentionForward&);
  void (*attention_backward)(Where..., const AttentionBackward&);
  void (*glu_forward)(Where..., const GluForward&);
  void (*glu_backward)(Where..., const GluBackward&);
  void (*embedding_forward)(Where..., const EmbeddingForward&);
  void (*embedding_backward)(Where..., const EmbeddingBackward&);
  void (*position_forward)(Where..., const PositionForward&);
  void (*position_backward)(Where..., const PositionBackward&);
  void (*linear_cross_entropy)(Where..., const LinearCrossEntropy&);
  void (*gather_rows)(Where..., const GatherRows&);
  void (*add_residual)(Where..., const AddResidual&);
  void (*add)(Where..., const Add&);
  void (*fill)(Where..., const Fill&);
  void (*soft_cap)(Where..., const SoftCap&);
  void (*cast)(Where..., const Cast&);
  void (*adamw)(Where..., const AdamW&);
  void (*sum_squares)(Where..., const SumSquares&);
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

}  // namespace strata::kernels
