// SPDX-License-Identifier: Apache-2.0
// The ends of the model: token embedding, and final norm with output projection and loss.
#include <cmath>
#include <cstring>

#include "engine/exec/segment_compute_ops.h"

namespace strata::exec {

using model::ParameterRole;

namespace {

// Rounded to the weights' type, as in Transformers.
float embedding_scale(const SegmentContext& context) {
  const model::Architecture& a = context.architecture;
  if (!a.block.scaled_embedding) return 1.0f;
  const float root = static_cast<float>(std::sqrt(static_cast<double>(a.hidden)));
  return context.dtype == DType::kF32 ? root : from_bf16(to_bf16(root));
}

float logit_cap(const SegmentContext& context) {
  return static_cast<float>(context.architecture.logit_cap);
}

// The loss of the targets, without gradients.
kernels::LinearCrossEntropy loss_of(const SegmentContext& context, const HeadMatrix& matrix,
                                    const kernels::Interior& normed, const model::Span& scratch) {
  return {.dtype = context.dtype,
          .rows = context.tokens(),
          .cols = context.architecture.hidden,
          .vocabulary = context.architecture.vocabulary,
          .cap = logit_cap(context),
          .h = normed,
          .w = matrix.weight,
          .targets = context.call.targets,
          .loss_sum = context.call.loss_sum,
          .workspace = context.scratch(scratch)};
}

}  // namespace

void embedding_forward(const SegmentContext& context) {
  context.ops.embedding_forward(context.queue, {.dtype = context.dtype,
                                                .rows = context.tokens(),
                                                .cols = context.architecture.hidden,
                                                .vocabulary = context.architecture.vocabulary,
                                                .scale = embedding_scale(context),
                                                .tokens = context.call.tokens,
                                                .w = context.weight(ParameterRole::kEmbedding),
                                                .out = context.call.output});
  if (context.architecture.position != model::Position::kLearned) return;
  context.ops.position_forward(context.queue, {.dtype = context.dtype,
                                               .rows = context.tokens(),
                                               .cols = context.architecture.hidden,
                                               .length = context.shape.positions(),
                                               .context = context.shape.context,
                                               .starts = context.starts(),
                                               .positions = context.positions(),
                                               .p = context.weight(ParameterRole::kPosition),
                                               .y = context.call.output});
}

void embedding_backward(const SegmentContext& context) {
  if (float* dp = context.grad(ParameterRole::kPosition)) {
    context.ops.position_backward(context.queue, {.dtype = context.dtype,
                                                  .rows = context.tokens(),
                                                  .cols = context.architecture.hidden,
                                                  .length = context.shape.length,
                                                  .context = context.shape.context,
                                                  .starts = context.starts(),
                                                  .positions = context.architecture.max_position,
                                                  .dy = context.call.grad_output,
                                                  .dp = dp,
                                                  .accumulate = !context.call.grad_first});
  }
  float* dw = context.grad(ParameterRole::kEmbedding);
  if (dw == nullptr) return;
  context.ops.embedding_backward(context.queue,
                                 {.dtype = context.dtype,
                                  .rows = context.tokens(),
                                  .cols = context.architecture.hidden,
                                  .vocabulary = context.architecture.vocabulary,
                                  .scale = embedding_scale(context),
                                  .ignored = static_cast<int32_t>(context.architecture.pad_token),
                                  .tokens = context.call.tokens,
                                  .dy = context.call.grad_output,
                                  .dw = dw,
                                  .accumulate = !context.call.grad_first});
}

void head_loss(const SegmentContext& context, const HeadMatrix& matrix) {
  const kernels::Interior normed = context.workspace(context.layout.grad);
  float* rstd = context.workspace_floats(context.layout.rstd);
  norm_input(context, normed, rstd);
  const bool below = context.call.grad_input != nullptr || context.trains_norm();
  kernels::LinearCrossEntropy op =
      loss_of(context, matrix, normed, context.layout.backward_scratch);
  op.grad_scale = context.call.grad_scale;
  op.dh = below || matrix.grad != nullptr ? normed : kernels::Interior();
  op.dw = matrix.grad;
  op.accumulate = !matrix.grad_first;
  context.ops.linear_cross_entropy(context.queue, op);
  if (below) norm_input_grad(context, rstd, normed, nullptr);
}

void head_loss_forward(const SegmentContext& context, const HeadMatrix& matrix) {
  const kernels::Interior normed = context.workspace(context.layout.normed);
  norm_input(context, normed, nullptr);
  context.ops.linear_cross_entropy(
      context.queue, loss_of(context, matrix, normed, context.layout.forward_scratch));
}

void head_logits(const SegmentContext& context, const HeadMatrix& matrix) {
  const bool cached = context.shape.is_cached();
  const int64_t rows = cached ? context.call.logit_count : context.shape.rows;
  if (rows == 0) return;
  const int64_t hidden = context.architecture.hidden;
  const int64_t row_bytes = hidden * bytes_of(context.dtype);
  std::byte* gathered = context.workspace_bytes(context.layout.gathered);
  context.ops.gather_rows(context.queue, {.rows = rows,
                                          .length = context.shape.length,
                                          .row_bytes = row_bytes,
                                          .together = cached,
                                          .x = context.call.input,
                                          .position = context.call.logit_position,
                                          .y = gathered});
  const kernels::Interior normed = context.workspace(context.layout.normed);
  norm_rows(context, gathered, rows, normed, nullptr);
  context.ops.matmul_forward(context.queue,
                             {.dtype = context.dtype,
                              .rows = rows,
                              .outputs = context.architecture.vocabulary,
                              .inputs = hidden,
                              .x = normed,
                              .w = matrix.weight,
                              .y = context.call.logits,
                              .by_row = cached,
                              .workspace = context.scratch(context.layout.forward_scratch)});
  if (logit_cap(context) == 0.0f) return;
  context.ops.soft_cap(context.queue, {.count = rows * context.architecture.vocabulary,
                                       .cap = logit_cap(context),
                                       .y = context.call.logits});
}

}  // namespace strata::exec
