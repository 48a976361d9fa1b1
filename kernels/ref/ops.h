// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/backend.h"

// Plain loops that follow the formulas of each op's header. Sums run in f64 in ascending order:
// faster backends, which sum in other orders, are compared with these.
namespace strata::kernels::ref {

void matmul_forward(const MatMulForward& op);
void matmul_input(const MatMulInput& op);
void matmul_weight(const MatMulWeight& op);
void rms_norm_forward(const RmsNormForward& op);
void rms_norm_backward(const RmsNormBackward& op);
void layer_norm_forward(const LayerNormForward& op);
void layer_norm_backward(const LayerNormBackward& op);
void rope(const Rope& op);
void attention_forward(const AttentionForward& op);
void attention_backward(const AttentionBackward& op);
void glu_forward(const GluForward& op);
void glu_backward(const GluBackward& op);
void embedding_forward(const EmbeddingForward& op);
void embedding_backward(const EmbeddingBackward& op);
void position_forward(const PositionForward& op);
void position_backward(const PositionBackward& op);
void linear_cross_entropy(const LinearCrossEntropy& op);
void gather_rows(const GatherRows& op);
void add_residual(const AddResidual& op);
void add(const Add& op);
void fill(const Fill& op);
void soft_cap(const SoftCap& op);
void cast(const Cast& op);
void adamw(const AdamW& op);
void sum_squares(const SumSquares& op);
void convert_in(const ConvertIn& op);
void convert_out(const ConvertOut& op);

}  // namespace strata::kernels::ref
