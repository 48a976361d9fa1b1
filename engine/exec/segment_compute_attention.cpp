// SPDX-License-Identifier: Apache-2.0
// Attention segment: out = x + norm(attention(rope(norm(norm(x) Wqk)), norm(x) Wv) Wo). Each of the
// norms is optional.
#include "engine/exec/segment_compute_attention.h"

#include <array>
#include <cmath>

namespace strata::exec {

using kernels::ConstInterior;
using kernels::Interior;
using model::ParameterRole;
using model::QkNorm;

Columns columns_of(const SegmentContext& context, Interior base) {
  const model::Architecture& a = context.architecture;
  const Interior k = base + a.heads * a.head_size;
  const int64_t width = context.layout.width;
  return {base, k, k + a.kv_heads * a.head_size, width, width, width};
}

namespace {

// Own q, and k and v of all context ranks.
Columns shared_columns(const SegmentContext& context, Interior q, float* keys) {
  const model::Architecture& a = context.architecture;
  const Interior k = {keys, DType::kF32};
  const int64_t width = context.keys_width();
  return {q, k, k + a.kv_heads * a.head_size, context.layout.width, width, width};
}

// Rotates heads that are adjacent.
void rotate(const SegmentContext& context, int64_t heads, Interior x, int64_t stride,
            bool inverse) {
  const model::Architecture& a = context.architecture;
  if (a.position != model::Position::kRope) return;
  const int64_t pairs = model::rope_pairs(a, model::rope_table_of(a, context.segment.layer));
  context.ops.rope(context.queue, {.rows = context.tokens(),
                                   .length = context.shape.positions(),
                                   .heads = heads,
                                   .head_size = a.head_size,
                                   .rotary = a.rope_of(context.segment.layer).rotary,
                                   .x = x,
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
  int64_t first_rstd;  // also the first of its sums
  // Where tensor ranks add up sums (kernels/norm.h): those of all, or where own ones go.
  const float* all_sums = nullptr;
  float* own_sums = nullptr;
};

std::array<HeadNorm, 2> head_norms(const SegmentContext& context) {
  const model::Architecture& a = context.architecture;
  const int64_t q = a.heads * a.head_size, k = a.kv_heads * a.head_size;
  const int64_t q_groups = model::query_norms(a), k_groups = model::key_norms(a);
  return {
      HeadNorm{ParameterRole::kQueryNorm, 0, q_groups, q / q_groups, 0},
      HeadNorm{ParameterRole::kKeyNorm, q, k_groups, k / k_groups, context.tokens() * q_groups}};
}

// With the sums of all tensor ranks, or with places for own ones.
std::array<HeadNorm, 2> head_norms_of_all(const SegmentContext& context, const float* sums) {
  std::array<HeadNorm, 2> norms = head_norms(context);
  if (!context.parts.sums_norms) return norms;
  for (HeadNorm& norm : norms) norm.all_sums = sums + norm.first_rstd;
  return norms;
}
std::array<HeadNorm, 2> head_norms_of_own(const SegmentContext& context) {
  std::array<HeadNorm, 2> norms = head_norms(context);
  for (HeadNorm& norm : norms) norm.own_sums = context.call.norm_sums + norm.first_rstd;
  return norms;
}
int64_t whole_cols(const SegmentContext& context, const HeadNorm& norm) {
  return context.parts.sums_norms ? norm.cols * context.tensor.ranks : norm.cols;
}

// Norms the heads of x, which writes what their backward needs to `rstd` unless it is null.
void norm_heads(const SegmentContext& context, const HeadNorm& norm, ConstInterior x,
                int64_t x_stride, Interior y, int64_t y_stride, float* rstd) {
  context.ops.rms_norm_forward(context.queue,
                               {.dtype = context.dtype,
                                .inside = true,
                                .rows = context.tokens(),
                                .groups = norm.groups,
                                .cols = norm.cols,
                                .x = x.data,
                                .x_stride = x_stride,
                                .w = context.weight(norm.role),
                                .offset = context.norm_offset(),
                                .y = y,
                                .y_stride = y_stride,
                                .rstd = rstd == nullptr ? nullptr : rstd + norm.first_rstd,
                                .eps = static_cast<float>(context.architecture.norm_eps),
                                .whole_cols = whole_cols(context, norm),
                                .own_sums = norm.own_sums,
                                .all_sums = norm.all_sums});
}

// Turns the gradient of normed heads into that of their input x, in place, or makes own sums of it.
void norm_heads_back(const SegmentContext& context, const HeadNorm& norm, ConstInterior x,
                     int64_t x_stride, const float* rstd, Interior grad, int64_t grad_stride) {
  const bool sums = norm.own_sums != nullptr;
  context.ops.rms_norm_backward(context.queue,
                                {.dtype = context.dtype,
                                 .inside = true,
                                 .rows = context.tokens(),
                                 .groups = norm.groups,
                                 .cols = norm.cols,
                                 .x = x.data,
                                 .x_stride = x_stride,
                                 .w = context.weight(norm.role),
                                 .offset = context.norm_offset(),
                                 .rstd = rstd + norm.first_rstd,
                                 .dy = grad,
                                 .dy_stride = grad_stride,
                                 .dx = sums ? nullptr : grad.data,
                                 .dx_stride = grad_stride,
                                 .dw = sums ? nullptr : context.grad(norm.role),
                                 .accumulate = !context.call.grad_first,
                                 .workspace = context.scratch(context.layout.backward_scratch),
                                 .whole_cols = whole_cols(context, norm),
                                 .own_sums = norm.own_sums,
                                 .all_sums = norm.all_sums});
}

}  // namespace

Columns turn(const SegmentContext& context, Interior projected, Interior turned, float* rstd,
             const float* sums) {
  const model::Architecture& a = context.architecture;
  Columns columns = columns_of(context, projected);
  const int64_t heads = a.heads + a.kv_heads;
  if (a.block.qk_norm == QkNorm::kNone) {
    rotate(context, heads, projected, columns.q_stride, false);
    return columns;
  }
  const int64_t width = heads * a.head_size;
  for (const HeadNorm& norm : head_norms_of_all(context, sums)) {
    norm_heads(context, norm, projected + norm.first, columns.q_stride, turned + norm.first, width,
               rstd);
  }
  rotate(context, heads, turned, width, false);
  return {turned, turned + a.heads * a.head_size, columns.v, width, width, columns.v_stride};
}

void turn_back(const SegmentContext& context, ConstInterior projected, const float* rstd,
               Interior grad_projected) {
  const model::Architecture& a = context.architecture;
  const int64_t stride = context.layout.width;
  rotate(context, a.heads + a.kv_heads, grad_projected, stride, true);
  if (a.block.qk_norm == QkNorm::kNone) return;
  const auto norms = context.parts.sums_norms ? head_norms_of_own(context) : head_norms(context);
  for (const HeadNorm& norm : norms) {
    norm_heads_back(context, norm, projected + norm.first, stride, rstd,
                    grad_projected + norm.first, stride);
  }
}

namespace {

// The same of own q alone, with the keys and values of all context ranks.
Columns turn_query(const SegmentContext& context, Interior projected, Interior turned) {
  const model::Architecture& a = context.architecture;
  const int64_t width = context.layout.width;
  Interior q = projected;
  if (a.block.qk_norm != QkNorm::kNone) {
    norm_heads(context, head_norms(context)[0], projected, width, turned, width, nullptr);
    q = turned;
  }
  rotate(context, a.heads, q, width, false);
  return shared_columns(context, q, context.call.keys);
}

float score_scale(const model::Architecture& a) {
  const double scalar = a.score_scalar > 0 ? a.score_scalar : static_cast<double>(a.head_size);
  return static_cast<float>(1.0 / std::sqrt(scalar));
}

template <typename Op>
void read_columns(const Columns& in, Op& op) {
  op.q = in.q;
  op.q_stride = in.q_stride;
  op.k = in.k;
  op.k_stride = in.k_stride;
  op.v = in.v;
  op.v_stride = in.v_stride;
}

// Forward or backward of attention, with what both have.
template <typename Op>
Op attention_of(const SegmentContext& context, std::byte* interior, const Columns& in) {
  const model::Architecture& a = context.architecture;
  const model::SegmentLayout& layout = context.layout;
  const bool swaps = context.parts.swaps_heads;
  Op op = model::attention_shape<Op>(a, context.shape, context.segment.layer);
  op.starts = context.starts();
  if (swaps && op.starts != nullptr) {
    op.starts = reinterpret_cast<const int32_t*>(floats_part(interior, layout.whole_starts));
  }
  op.scale = score_scale(a);
  read_columns(in, op);
  op.o = context.part(interior, swaps ? layout.whole_attended : layout.attended);
  op.lse = floats_part(interior, layout.log_sum_exp);
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
  read_columns(in, op);
  op.o = context.part(interior, layout.attended);
  op.cache = {context.call.cache, context.interior};
  op.workspace = context.scratch(layout.forward_scratch);
  context.ops.cached_attention(context.queue, op);
}

}  // namespace

void attend(const SegmentContext& context, std::byte* interior, const Columns& in) {
  if (context.shape.is_cached()) return attend_cached(context, interior, in);
  auto op = attention_of<kernels::AttentionForward>(context, interior, in);
  op.workspace = context.scratch(context.layout.forward_scratch);
  context.ops.attention_forward(context.queue, op);
}

void attend_backward(const SegmentContext& context, std::byte* interior, const Columns& in,
                     ConstInterior grad_attended, const Columns& grads) {
  auto op = attention_of<kernels::AttentionBackward>(context, interior, in);
  op.d_o = grad_attended;
  op.dq = grads.q;
  op.dk = grads.k;
  op.dv = grads.v;
  op.dq_stride = grads.q_stride;
  op.dk_stride = grads.k_stride;
  op.dv_stride = grads.v_stride;
  op.workspace = context.scratch(context.layout.backward_scratch);
  context.ops.attention_backward(context.queue, op);
}

namespace {

// Leaves the gradients of q where `attended` was, and those of all keys and values in the call's
// buffer.
void attend_shared_backward(const SegmentContext& context, std::byte* interior,
                            ConstInterior grad_attended, Interior grad_queries) {
  const model::SegmentLayout& layout = context.layout;
  const Interior projected = context.part(interior, layout.projected);
  const Columns in = context.architecture.block.qk_norm == QkNorm::kNone
                         ? shared_columns(context, projected, context.call.keys)
                         : turn_query(context, projected, context.workspace(layout.turned_again));
  attend_backward(context, interior, in, grad_attended,
                  shared_columns(context, grad_queries, context.call.key_grads));
  context.queue.copy(context.part(interior, layout.attended).data, grad_queries.data,
                     layout.attended.bytes);
}

// The norms of q and of own keys again, whose inputs and statistics their backward reads.
void norm_shared_back(const SegmentContext& context, const ProjectionOperands& keys,
                      ConstInterior projected, Interior grad_queries, Interior grad_keys) {
  const model::SegmentLayout& layout = context.layout;
  const auto [of_queries, of_keys] = head_norms(context);
  const Interior own_keys = context.workspace(layout.own_keys);
  const Interior normed = context.workspace(layout.turned_again);
  float* rstd = context.workspace_floats(layout.head_rstd);
  project(context, keys, branch_input(context, context.workspace(layout.branch), nullptr),
          own_keys);
  norm_heads(context, of_queries, projected, layout.width, normed, layout.width, rstd);
  norm_heads_back(context, of_queries, projected, layout.width, rstd, grad_queries, layout.width);
  norm_heads(context, of_keys, own_keys, keys.width, normed, 0, rstd);
  norm_heads_back(context, of_keys, own_keys, keys.width, rstd, grad_keys, keys.width);
}

// q, k and v of the part before, and the sums that all ranks have now.
void take_projected(const SegmentContext& context, std::byte* interior) {
  const model::SegmentLayout& layout = context.layout;
  context.queue.copy(context.part(interior, layout.projected).data, context.call.projected,
                     context.tokens() * layout.width * bytes_of(context.interior));
  const int64_t sums = 2 * context.tokens() * bytes_of(DType::kF32);
  context.queue.copy(floats_part(interior, layout.norm_sums), context.call.norm_sums, sums);
}

// Fills `attended`.
void attend_here(const SegmentContext& context, std::byte* interior) {
  const model::SegmentLayout& layout = context.layout;
  const Interior projected = context.part(interior, layout.projected);
  if (context.parts.sums_norms) {
    take_projected(context, interior);
  } else {
    project(context,
            {layout.into, context.architecture.hidden, layout.width, layout.forward_scratch},
            branch_input(context, context.workspace(layout.normed), nullptr), projected);
  }
  const Interior turned = context.workspace(layout.turned);
  const Columns in = context.parts.shares_keys ? turn_query(context, projected, turned)
                                               : turn(context, projected, turned, nullptr,
                                                      floats_part(interior, layout.norm_sums));
  attend(context, interior, in);
}

}  // namespace

void attention_forward(const SegmentContext& context, std::byte* interior) {
  const model::Architecture& a = context.architecture;
  const model::SegmentLayout& layout = context.layout;
  context.parts.swaps_heads ? take_attended(context, interior) : attend_here(context, interior);
  if (ends_before_output(context)) return;
  project(context, branch_operands(context, a.heads * a.head_size, layout.forward_scratch),
          context.part(interior, layout.attended), branch_output(context, interior));
}

void attention_backward(const SegmentContext& context) {
  const model::Architecture& a = context.architecture;
  const model::SegmentLayout& layout = context.layout;
  std::byte* interior = static_cast<std::byte*>(context.call.interior);
  const ProjectionOperands into = {layout.into, a.hidden, layout.width, layout.backward_scratch};
  const ProjectionOperands out_of =
      branch_operands(context, a.heads * a.head_size, layout.backward_scratch);
  const Interior projected = context.part(interior, layout.projected);
  const Interior attended = context.part(interior, layout.attended);

  const bool shares_keys = context.parts.shares_keys, swaps_heads = context.parts.swaps_heads;
  const ConstInterior grad_branch = branch_output_grad(context, context.workspace(layout.grad));
  hold(context, attended, layout.later_branch);
  project_weight_grad(context, out_of, grad_branch, attended);
  if (!shares_keys && !swaps_heads && needs_no_input_grad(context)) return;
  const Interior grad_attended = context.workspace(layout.branch);
  project_input_grad(context, out_of, grad_branch, grad_attended);
  if (swaps_heads) return give_attended_grad(context, grad_attended);

  const Interior grad_projected = context.operand_or(layout.inner, layout.later_inner);
  if (shares_keys) {
    return attend_shared_backward(context, interior, grad_attended, grad_projected);
  }
  float* head_rstd = context.workspace_floats(layout.head_rstd);
  const Columns in = a.block.qk_norm == QkNorm::kNone
                         ? columns_of(context, projected)
                         : turn(context, projected, context.workspace(layout.turned_again),
                                head_rstd, floats_part(interior, layout.norm_sums));
  attend_backward(context, interior, in, grad_attended, columns_of(context, grad_projected));
  turn_back(context, projected, head_rstd, grad_projected);
  if (context.parts.sums_norms) {
    return context.queue.copy(context.call.projected, grad_projected.data,
                              context.tokens() * layout.width * bytes_of(context.interior));
  }

  // The gradients of branch and attended are no longer needed, so their spans are used again.
  finish_branch_grad(context, {{into, grad_projected, layout.later_inner}});
}

void keys_forward(const SegmentContext& context) {
  const model::Architecture& a = context.architecture;
  const model::SegmentLayout& layout = context.layout;
  const Interior keys = context.own_keys(context.call.keys);
  const int64_t width = context.keys_width();
  project(context, {layout.keys, a.hidden, width, layout.forward_scratch},
          branch_input(context, context.workspace(layout.normed), nullptr), keys);
  if (a.block.qk_norm != QkNorm::kNone) {
    norm_heads(context, head_norms(context)[1], keys, width, keys, width, nullptr);
  }
  rotate(context, a.kv_heads, keys, width, false);
}

void keys_backward(const SegmentContext& context) {
  const model::Architecture& a = context.architecture;
  const model::SegmentLayout& layout = context.layout;
  std::byte* interior = static_cast<std::byte*>(context.call.interior);
  const ProjectionOperands queries = {layout.into, a.hidden, layout.width, layout.backward_scratch};
  const ProjectionOperands keys = {layout.keys, a.hidden, context.keys_width(),
                                   layout.backward_scratch};
  const Interior grad_queries = context.part(interior, layout.attended);
  const Interior grad_keys = context.own_keys(context.call.key_grads);

  rotate(context, a.heads, grad_queries, queries.width, true);
  rotate(context, a.kv_heads, grad_keys, keys.width, true);
  if (a.block.qk_norm != QkNorm::kNone) {
    norm_shared_back(context, keys, context.part(interior, layout.projected), grad_queries,
                     grad_keys);
  }
  finish_branch_grad(
      context, {{queries, grad_queries, layout.later_inner}, {keys, grad_keys, layout.later_keys}});
}

void norms_forward(const SegmentContext& context) {
  const model::SegmentLayout& layout = context.layout;
  const Interior projected = {context.call.projected, context.interior};
  project(context, {layout.into, context.architecture.hidden, layout.width, layout.forward_scratch},
          branch_input(context, context.workspace(layout.normed), nullptr), projected);
  for (const HeadNorm& norm : head_norms_of_own(context)) {
    norm_heads(context, norm, projected + norm.first, layout.width, {nullptr, context.interior},
               layout.width, nullptr);
  }
}

void norms_backward(const SegmentContext& context) {
  const model::SegmentLayout& layout = context.layout;
  std::byte* interior = static_cast<std::byte*>(context.call.interior);
  const ConstInterior projected = context.part(interior, layout.projected);
  const Interior grad = context.operand_or(layout.inner, layout.later_inner);
  const Interior normed = context.workspace(layout.turned_again);
  float* rstd = context.workspace_floats(layout.head_rstd);
  context.queue.copy(grad.data, context.call.projected,
                     context.tokens() * layout.width * bytes_of(context.interior));
  for (const HeadNorm& norm : head_norms_of_all(context, floats_part(interior, layout.norm_sums))) {
    norm_heads(context, norm, projected + norm.first, layout.width, normed, norm.cols, rstd);
  }
  for (const HeadNorm& norm : head_norms_of_all(context, context.call.norm_sums)) {
    norm_heads_back(context, norm, projected + norm.first, layout.width, rstd, grad + norm.first,
                    layout.width);
  }
  const ProjectionOperands into = {layout.into, context.architecture.hidden, layout.width,
                                   layout.backward_scratch};
  finish_branch_grad(context, {{into, grad, layout.later_inner}});
}

}  // namespace strata::exec
