// SPDX-License-Identifier: Apache-2.0
// Attention segment: out = x + norm(attention(rope(norm(norm(x) Wqk)), norm(x) Wv) Wo). Each of the
// norms is optional.
#include <array>
#include <cmath>

#include "engine/exec/segment_compute_ops.h"

namespace strata::exec {
namespace {

using kernels::ConstInterior;
using kernels::Interior;
using model::ParameterRole;
using model::QkNorm;

// q, k and v, or their gradients. `stride` is the number of elements between tokens of q and k.
struct Columns {
  Interior q;
  Interior k;
  Interior v;
  int64_t stride;
};

Columns columns_of(const SegmentContext& context, Interior base) {
  const model::Architecture& a = context.architecture;
  const Interior k = base + a.heads * a.head_size;
  return {base, k, k + a.kv_heads * a.head_size, context.layout.width};
}

float score_scale(const model::Architecture& a) {
  const double scalar = a.score_scalar > 0 ? a.score_scalar : static_cast<double>(a.head_size);
  return static_cast<float>(1.0 / std::sqrt(scalar));
}

// Rotates q and k, which are adjacent, in one call.
void rotate(const SegmentContext& context, Interior q, int64_t stride, bool inverse) {
  const model::Architecture& a = context.architecture;
  if (a.position != model::Position::kRope) return;
  const int64_t pairs = model::rope_pairs(a, model::rope_table_of(a, context.segment.layer));
  context.ops.rope(context.queue, {.rows = context.tokens(),
                                   .length = context.shape.positions(),
                                   .heads = a.heads + a.kv_heads,
                                   .head_size = a.head_size,
                                   .rotary = a.rope_of(context.segment.layer).rotary,
                                   .x = q,
                                   .row_stride = stride,
                                   .cos = context.call.rope,
                                   .sin = context.call.rope + context.shape.positions() * pairs,
                                   .positions = context.positions(),
                                   .inverse = inverse});
}

// The norm of q or of k.
struct HeadNorm {
  ParameterRole role;
  int64_t first;  // column
  int64_t groups;
  int64_t cols;
  int64_t first_rstd;
};

std::array<HeadNorm, 2> head_norms(const SegmentContext& context) {
  const model::Architecture& a = context.architecture;
  const int64_t q = a.heads * a.head_size, k = a.kv_heads * a.head_size;
  const int64_t q_groups = model::query_norms(a), k_groups = model::key_norms(a);
  return {
      HeadNorm{ParameterRole::kQueryNorm, 0, q_groups, q / q_groups, 0},
      HeadNorm{ParameterRole::kKeyNorm, q, k_groups, k / k_groups, context.tokens() * q_groups}};
}

// q, k and v as attention reads them: rotated in place, or, when q and k are normed first, written
// to `turned`, because the norms' backward needs their inputs.
Columns turn(const SegmentContext& context, Interior projected, Interior turned, float* rstd) {
  const model::Architecture& a = context.architecture;
  Columns columns = columns_of(context, projected);
  if (a.block.qk_norm == QkNorm::kNone) {
    rotate(context, projected, columns.stride, false);
    return columns;
  }
  const int64_t width = (a.heads + a.kv_heads) * a.head_size;
  for (const HeadNorm& norm : head_norms(context)) {
    context.ops.rms_norm_forward(context.queue,
                                 {.dtype = context.dtype,
                                  .inside = true,
                                  .rows = context.tokens(),
                                  .groups = norm.groups,
                                  .cols = norm.cols,
                                  .x = (projected + norm.first).data,
                                  .x_stride = columns.stride,
                                  .w = context.weight(norm.role),
                                  .offset = context.norm_offset(),
                                  .y = turned + norm.first,
                                  .y_stride = width,
                                  .rstd = rstd == nullptr ? nullptr : rstd + norm.first_rstd,
                                  .eps = static_cast<float>(a.norm_eps)});
  }
  rotate(context, turned, width, false);
  return {turned, turned + a.heads * a.head_size, columns.v, width};
}

// Turns gradients of rotated q and k into those of the projections, in place.
void turn_back(const SegmentContext& context, ConstInterior projected, const float* rstd,
               Interior grad_projected) {
  const int64_t stride = context.layout.width;
  rotate(context, grad_projected, stride, true);
  if (context.architecture.block.qk_norm == QkNorm::kNone) return;
  for (const HeadNorm& norm : head_norms(context)) {
    context.ops.rms_norm_backward(context.queue,
                                  {.dtype = context.dtype,
                                   .inside = true,
                                   .rows = context.tokens(),
                                   .groups = norm.groups,
                                   .cols = norm.cols,
                                   .x = (projected + norm.first).data,
                                   .x_stride = stride,
                                   .w = context.weight(norm.role),
                                   .offset = context.norm_offset(),
                                   .rstd = rstd + norm.first_rstd,
                                   .dy = grad_projected + norm.first,
                                   .dy_stride = stride,
                                   .dx = (grad_projected + norm.first).data,
                                   .dx_stride = stride,
                                   .dw = context.grad(norm.role),
                                   .accumulate = context.has_parts() || !context.call.grad_first,
                                   .workspace = context.scratch(context.layout.backward_scratch)});
  }
}

// Forward or backward of attention, with q, k and v.
template <typename Op>
Op attention_of(const SegmentContext& context, const Columns& in) {
  const model::Architecture& a = context.architecture;
  Op op = model::attention_shape<Op>(a, context.shape, context.segment.layer);
  op.starts = context.starts();
  op.scale = score_scale(a);
  op.q = in.q;
  op.q_stride = in.stride;
  op.k = in.k;
  op.k_stride = in.stride;
  op.v = in.v;
  op.v_stride = context.layout.width;
  return op;
}

// Over the keys and values of earlier passes, to which those of the new tokens are added.
void attend_cached(const SegmentContext& context, std::byte* interior, const Columns& in) {
  const model::SegmentLayout& layout = context.layout;
  kernels::CachedAttention op =
      model::cached_shape(context.architecture, context.planned, context.segment.layer);
  op.tokens = context.tokens();
  op.scale = score_scale(context.architecture);
  op.row = context.texts();
  op.position = context.positions();
  op.q = in.q;
  op.q_stride = in.stride;
  op.k = in.k;
  op.k_stride = in.stride;
  op.v = in.v;
  op.v_stride = layout.width;
  op.o = context.part(interior, layout.attended);
  op.cache = {context.call.cache, context.interior};
  op.workspace = context.scratch(layout.forward_scratch);
  context.ops.cached_attention(context.queue, op);
}

void attend(const SegmentContext& context, std::byte* interior, const Columns& in) {
  if (context.shape.is_cached()) return attend_cached(context, interior, in);
  const model::SegmentLayout& layout = context.layout;
  auto op = attention_of<kernels::AttentionForward>(context, in);
  op.o = context.part(interior, layout.attended);
  op.lse = floats_part(interior, layout.log_sum_exp);
  op.workspace = context.scratch(layout.forward_scratch);
  context.ops.attention_forward(context.queue, op);
}

// Writes gradients of q, k and v to the columns of `grad_projected`.
void attend_backward(const SegmentContext& context, std::byte* interior, const Columns& in,
                     ConstInterior grad_attended, Interior grad_projected) {
  const model::SegmentLayout& layout = context.layout;
  const Columns grads = columns_of(context, grad_projected);
  auto op = attention_of<kernels::AttentionBackward>(context, in);
  op.o = context.part(interior, layout.attended);
  op.lse = floats_part(interior, layout.log_sum_exp);
  op.d_o = grad_attended;
  op.dq = grads.q;
  op.dk = grads.k;
  op.dv = grads.v;
  op.dq_stride = op.dk_stride = op.dv_stride = layout.width;
  op.workspace = context.scratch(layout.backward_scratch);
  context.ops.attention_backward(context.queue, op);
}

}  // namespace

void attention_forward(const SegmentContext& context, std::byte* interior) {
  const model::Architecture& a = context.architecture;
  const model::SegmentLayout& layout = context.layout;
  const Interior projected = context.part(interior, layout.projected);

  project(context, {layout.into, a.hidden, layout.width, layout.forward_scratch},
          branch_input(context, context.workspace(layout.normed), nullptr), projected);
  const Columns in = turn(context, projected, context.workspace(layout.turned), nullptr);
  attend(context, interior, in);
  if (ends_before_output(context)) return;
  project(context, branch_operands(context, a.heads * a.head_size),
          context.part(interior, layout.attended), branch_output(context, interior));
}

void attention_backward(const SegmentContext& context) {
  const model::Architecture& a = context.architecture;
  const model::SegmentLayout& layout = context.layout;
  std::byte* interior = static_cast<std::byte*>(context.call.interior);
  const ProjectionOperands into = {layout.into, a.hidden, layout.width, layout.backward_scratch};
  const ProjectionOperands out_of = {layout.out_of, a.heads * a.head_size, a.hidden,
                                     layout.backward_scratch};
  const Interior projected = context.part(interior, layout.projected);
  const Interior grad = context.workspace(layout.grad);

  clear_summed_grads(context);
  const ConstInterior grad_branch = branch_output_grad(context, grad);
  project_weight_grad(context, out_of, grad_branch, context.part(interior, layout.attended));
  if (needs_no_input_grad(context)) return;
  const Interior grad_attended = context.workspace(layout.branch);
  project_input_grad(context, out_of, grad_branch, grad_attended);

  const Interior grad_projected = context.workspace(layout.inner);
  float* head_rstd = context.workspace_floats(layout.head_rstd);
  const Columns in =
      a.block.qk_norm == QkNorm::kNone
          ? columns_of(context, projected)
          : turn(context, projected, context.workspace(layout.turned_again), head_rstd);
  attend_backward(context, interior, in, grad_attended, grad_projected);
  turn_back(context, projected, head_rstd, grad_projected);

  // The gradients of branch and attended are no longer needed, so their spans are used again.
  finish_branch_grad(context, into, grad_projected);
}

}  // namespace strata::exec
