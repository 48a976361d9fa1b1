// SPDX-License-Identifier: Apache-2.0
// Attention segment: out = x + attention(rope(rmsnorm(x) Wqkv)) Wo.
#include <cmath>

#include "engine/exec/segment_compute_ops.h"

namespace strata::exec {
namespace {

// q, k and v as columns of one buffer, or their gradients.
struct Columns {
  float* q;
  float* k;
  float* v;
};

Columns columns_of(const model::Architecture& a, float* base) {
  float* k = base + a.heads * a.head_size;
  return {base, k, k + a.kv_heads * a.head_size};
}

float* interior_part(std::byte* interior, const model::Span& span) {
  return reinterpret_cast<float*>(interior + span.offset);
}

float score_scale(const model::Architecture& a) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.head_size)));
}

// Turns q and k, which lie side by side, in one call.
void rotate(const SegmentContext& context, float* projected, bool inverse) {
  const model::Architecture& a = context.architecture;
  context.backend.rope({.rows = context.tokens(),
                        .length = context.shape.length,
                        .heads = a.heads + a.kv_heads,
                        .head_size = a.head_size,
                        .x = projected,
                        .row_stride = context.layout.width,
                        .cos = context.rope_cos,
                        .sin = context.rope_sin,
                        .inverse = inverse});
}

}  // namespace

void attention_forward(const SegmentContext& context, std::byte* interior) {
  const model::Architecture& a = context.architecture;
  const model::SegmentLayout& layout = context.layout;
  float* projected = interior_part(interior, layout.projected);
  float* attended = interior_part(interior, layout.attended);
  float* normed = context.workspace(layout.normed);

  norm_input(context, normed, nullptr);
  project(context, {layout.into, a.hidden, layout.width, layout.forward_scratch}, normed,
          projected);
  rotate(context, projected, false);
  const Columns columns = columns_of(a, projected);
  context.backend.attention_forward({.batch = context.shape.rows,
                                     .length = context.shape.length,
                                     .heads = a.heads,
                                     .kv_heads = a.kv_heads,
                                     .head_size = a.head_size,
                                     .scale = score_scale(a),
                                     .window = a.window,
                                     .q = columns.q,
                                     .q_stride = layout.width,
                                     .k = columns.k,
                                     .k_stride = layout.width,
                                     .v = columns.v,
                                     .v_stride = layout.width,
                                     .o = attended,
                                     .lse = interior_part(interior, layout.log_sum_exp),
                                     .workspace = context.scratch(layout.forward_scratch)});
  if (context.call.output == nullptr) return;
  float* branch = normed;
  project(context, {layout.out_of, a.heads * a.head_size, a.hidden, layout.forward_scratch},
          attended, branch);
  add_to_residual(context, branch);
}

void attention_backward(const SegmentContext& context) {
  const model::Architecture& a = context.architecture;
  const model::SegmentLayout& layout = context.layout;
  std::byte* interior = static_cast<std::byte*>(context.call.interior);
  const ProjectionOperands into = {layout.into, a.hidden, layout.width, layout.backward_scratch};
  const ProjectionOperands out_of = {layout.out_of, a.heads * a.head_size, a.hidden,
                                     layout.backward_scratch};
  float* attended = interior_part(interior, layout.attended);
  float* grad = context.workspace(layout.grad);

  const float* grad_branch = branch_output_grad(context, grad);
  project_weight_grad(context, out_of, grad_branch, attended);
  if (needs_no_input_grad(context)) return;
  float* grad_attended = context.workspace(layout.branch);
  project_input_grad(context, out_of, grad_branch, grad_attended);

  float* grad_projected = context.workspace(layout.inner);
  const Columns columns = columns_of(a, interior_part(interior, layout.projected));
  const Columns grads = columns_of(a, grad_projected);
  context.backend.attention_backward({.batch = context.shape.rows,
                                      .length = context.shape.length,
                                      .heads = a.heads,
                                      .kv_heads = a.kv_heads,
                                      .head_size = a.head_size,
                                      .scale = score_scale(a),
                                      .window = a.window,
                                      .q = columns.q,
                                      .q_stride = layout.width,
                                      .k = columns.k,
                                      .k_stride = layout.width,
                                      .v = columns.v,
                                      .v_stride = layout.width,
                                      .o = attended,
                                      .lse = interior_part(interior, layout.log_sum_exp),
                                      .d_o = grad_attended,
                                      .dq = grads.q,
                                      .dq_stride = layout.width,
                                      .dk = grads.k,
                                      .dk_stride = layout.width,
                                      .dv = grads.v,
                                      .dv_stride = layout.width,
                                      .workspace = context.scratch(layout.backward_scratch)});
  rotate(context, grad_projected, true);

  // The gradients of branch and attended are used up: their spans take the norm's output and its
  // gradient.
  float* normed = context.workspace(layout.branch);
  float* rstd = context.workspace(layout.rstd);
  norm_input(context, normed, rstd);
  project_weight_grad(context, into, grad_projected, normed);
  project_input_grad(context, into, grad_projected, grad);
  norm_input_grad(context, rstd, grad, context.call.grad_output);
}

}  // namespace strata::exec
