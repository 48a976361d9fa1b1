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
  if (context.dtype == DType::kF32) return root;
  return context.dtype == DType::kBF16 ? from_bf16(to_bf16(root)) : from_f16(to_f16(root));
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
          .vocabulary = context.own_tokens.count,
          .cap = logit_cap(context),
          .h = normed,
          .w = matrix.weight,
          .targets = context.call.targets,
          .first = context.own_tokens.first,
          .vocabulary_end = context.vocabulary_end(),
          .all_scores = context.tensor.cuts_vocabulary ? context.call.scores : nullptr,
          .ranks = context.tensor.ranks,
          .loss_sum = context.call.loss_sum,
          .workspace = context.scratch(scratch)};
}

void embed_tokens(const SegmentContext& context, void* out) {
  context.ops.embedding_forward(context.queue, {.dtype = context.dtype,
                                                .rows = context.tokens(),
                                                .cols = context.architecture.hidden,
                                                .vocabulary = context.own_tokens.count,
                                                .first = context.own_tokens.first,
                                                .vocabulary_end = context.vocabulary_end(),
                                                .scale = embedding_scale(context),
                                                .tokens = context.call.tokens,
                                                .w = context.weight(ParameterRole::kEmbedding),
                                                .out = out});
}

void add_positions(const SegmentContext& context, void* rows) {
  context.ops.position_forward(context.queue, {.dtype = context.dtype,
                                               .rows = context.tokens(),
                                               .cols = context.architecture.hidden,
                                               .length = context.shape.positions(),
                                               .context = context.shape.context,
                                               .starts = context.starts(),
                                               .positions = context.positions(),
                                               .p = context.weight(ParameterRole::kPosition),
                                               .y = rows});
}

bool adds_positions(const SegmentContext& context) {
  return context.architecture.position == model::Position::kLearned &&
         context.brings_shared_grads();
}

// Rows of other ranks' tokens are zero here, so that their sum has the bits of the one that is not.
// One rank brings the positions.
void embed_own_tokens(const SegmentContext& context) {
  std::byte* rows = context.workspace_bytes(context.layout.own_rows);
  embed_tokens(context, rows);
  if (adds_positions(context)) add_positions(context, rows);
  context.ops.cast(context.queue, {.dtype = context.dtype,
                                   .count = context.tokens() * context.architecture.hidden,
                                   .x = rows,
                                   .y = context.branch()});
}

void take_own_rows(const SegmentContext& context) {
  void* out = context.call.output;
  const int64_t count = context.own_count();
  if (count == 0) return;
  const int64_t words = (count * bytes_of(context.dtype) + 3) / 4;  // a boundary has whole pages
  context.ops.fill(context.queue, {.count = words, .value = 0.0f, .y = static_cast<float*>(out)});
  context.ops.add_residual(
      context.queue,
      {.dtype = context.dtype, .count = count, .x = out, .a = context.own_branch(), .y = out});
}

}  // namespace

void embedding_forward(const SegmentContext& context) {
  if (context.parts.sums_rows) {
    return context.call.part == 0 ? embed_own_tokens(context) : take_own_rows(context);
  }
  embed_tokens(context, context.call.output);
  if (adds_positions(context)) add_positions(context, context.call.output);
}

void embedding_backward(const SegmentContext& context) {
  const void* dy = context.output_grad_rows();
  float* dp = context.grad(ParameterRole::kPosition);
  if (dp != nullptr && context.brings_shared_grads()) {
    context.ops.position_backward(context.queue, {.dtype = context.dtype,
                                                  .rows = context.tokens(),
                                                  .cols = context.architecture.hidden,
                                                  .length = context.shape.length,
                                                  .context = context.shape.context,
                                                  .starts = context.starts(),
                                                  .positions = context.architecture.max_position,
                                                  .dy = dy,
                                                  .dp = dp,
                                                  .accumulate = !context.call.grad_first});
  }
  float* dw = context.grad(ParameterRole::kEmbedding);
  if (dw == nullptr) return;
  context.ops.embedding_backward(context.queue,
                                 {.dtype = context.dtype,
                                  .rows = context.tokens(),
                                  .cols = context.architecture.hidden,
                                  .vocabulary = context.own_tokens.count,
                                  .first = context.own_tokens.first,
                                  .vocabulary_end = context.vocabulary_end(),
                                  .scale = embedding_scale(context),
                                  .ignored = static_cast<int32_t>(context.architecture.pad_token),
                                  .tokens = context.call.tokens,
                                  .dy = dy,
                                  .dw = dw,
                                  .accumulate = !context.call.grad_first});
}

void head_loss(const SegmentContext& context, const HeadMatrix& matrix) {
  const kernels::Interior normed = context.workspace(context.layout.grad);
  const bool sums = context.parts.shares_scores;
  float* rstd = sums ? nullptr : context.workspace_floats(context.layout.rstd);
  norm_input(context, normed, rstd);
  const bool below = context.call.grad_input != nullptr || context.trains_norm();
  kernels::LinearCrossEntropy op =
      loss_of(context, matrix, normed, context.layout.backward_scratch);
  op.grad_scale = context.call.grad_scale;
  op.dh = sums ? context.branch() : below || matrix.grad != nullptr ? normed : kernels::Interior();
  op.dw = matrix.grad;
  op.accumulate = !matrix.grad_first;
  context.ops.linear_cross_entropy(context.queue, op);
  if (below && !sums) norm_input_grad(context, rstd, normed, nullptr);
}

void head_scores(const SegmentContext& context, const HeadMatrix& matrix) {
  const kernels::Interior normed = context.workspace(context.layout.normed);
  norm_input(context, normed, nullptr);
  kernels::LinearCrossEntropy op = loss_of(context, matrix, normed, context.layout.forward_scratch);
  op.scores = context.own_scores();
  op.all_scores = nullptr;
  op.loss_sum = nullptr;
  context.ops.linear_cross_entropy(context.queue, op);
}

void head_norm_grad(const SegmentContext& context) {
  if (context.call.grad_input == nullptr && !context.trains_norm()) return;
  float* rstd = context.workspace_floats(context.layout.rstd);
  norm_own_input(context, context.workspace(context.layout.grad), rstd);
  norm_input_grad(context, rstd, context.own_branch(), nullptr);
}

void head_loss_forward(const SegmentContext& context, const HeadMatrix& matrix) {
  const kernels::Interior normed = context.workspace(context.layout.normed);
  norm_input(context, normed, nullptr);
  context.ops.linear_cross_entropy(
      context.queue, loss_of(context, matrix, normed, context.layout.forward_scratch));
}

namespace {

// Those of other ranks are zero here, so that the sum over ranks has all.
void place_own_logits(const SegmentContext& context, const float* own, int64_t rows) {
  const int64_t all = context.architecture.vocabulary;
  const model::TokenRange& tokens = context.own_tokens;
  context.ops.fill(
      context.queue,
      {.count = context.planned.logit_rows() * all, .value = 0.0f, .y = context.call.logits});
  for (int64_t row = 0; row < rows; ++row) {
    context.queue.copy(context.call.logits + row * all + tokens.first, own + row * tokens.count,
                       tokens.count * int64_t{4});
  }
}

}  // namespace

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
                                          .x = context.input_rows(),
                                          .position = context.call.logit_position,
                                          .y = gathered});
  const kernels::Interior normed = context.workspace(context.layout.normed);
  norm_rows(context, gathered, rows, normed, nullptr);
  const bool cuts = context.tensor.cuts_vocabulary;
  float* own = cuts ? context.workspace_floats(context.layout.own_logits) : context.call.logits;
  const int64_t tokens = context.own_tokens.count;
  context.ops.matmul_forward(context.queue,
                             {.dtype = context.dtype,
                              .rows = rows,
                              .outputs = tokens,
                              .inputs = hidden,
                              .x = normed,
                              .w = matrix.weight,
                              .y = own,
                              .by_row = cached,
                              .workspace = context.scratch(context.layout.forward_scratch)});
  if (logit_cap(context) != 0.0f) {
    context.ops.soft_cap(context.queue,
                         {.count = rows * tokens, .cap = logit_cap(context), .y = own});
  }
  if (cuts) place_own_logits(context, own, rows);
}

}  // namespace strata::exec
