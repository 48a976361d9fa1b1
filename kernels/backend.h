// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/convert.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/glu.h"
#include "kernels/layer_norm.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/position.h"
#include "kernels/rope.h"
#include "kernels/sum_squares.h"

namespace strata::kernels {

// One implementation of every op. Each entry runs to its end in the calling thread's Parallel and
// checks its shapes; contracts are in the op's header.
struct Backend {
  const char* name;
  void (*matmul_forward)(const MatMulForward&);
  void (*matmul_input)(const MatMulInput&);
  void (*matmul_weight)(const MatMulWeight&);
  void (*rms_norm_forward)(const RmsNormForward&);
  void (*rms_norm_backward)(const RmsNormBackward&);
  void (*layer_norm_forward)(const LayerNormForward&);
  void (*layer_norm_backward)(const LayerNormBackward&);
  void (*rope)(const Rope&);
  void (*attention_forward)(const AttentionForward&);
  void (*attention_backward)(const AttentionBackward&);
  void (*glu_forward)(const GluForward&);
  void (*glu_backward)(const GluBackward&);
  void (*embedding_forward)(const EmbeddingForward&);
  void (*embedding_backward)(const EmbeddingBackward&);
  void (*position_forward)(const PositionForward&);
  void (*position_backward)(const PositionBackward&);
  void (*linear_cross_entropy)(const LinearCrossEntropy&);
  void (*add_residual)(const AddResidual&);
  void (*add)(const Add&);
  void (*fill)(const Fill&);
  void (*soft_cap)(const SoftCap&);
  void (*cast)(const Cast&);
  void (*adamw)(const AdamW&);
  void (*sum_squares)(const SumSquares&);
  void (*convert_in)(const ConvertIn&);
  void (*convert_out)(const ConvertOut&);
};

// Plain scalar loops: the specification. One thread.
const Backend& ref_backend();

// SIMD for the machine it runs on, oneDNN products, as many threads as the caller's Parallel has.
const Backend& cpu_backend();

}  // namespace strata::kernels
