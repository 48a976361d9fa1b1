// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/exec/segment_compute_ops.h"

namespace strata::exec {

using kernels::ConstInterior;
using kernels::Interior;
using model::ParameterRole;

void project(const SegmentContext& context, const ProjectionOperands& operands, ConstInterior x,
             Interior y) {
  for (const model::Projection& one : operands.projections) {
    context.ops.matmul_forward(context.queue,
                               {.dtype = context.dtype,
                                .rows = context.tokens(),
                                .outputs = one.outputs,
                                .inputs = operands.inputs,
                                .x = x,
                                .w = context.weight(one.offset),
                                .bias = operands.with_bias ? context.bias(one) : nullptr,
                                .y = y + one.column,
                                .y_stride = operands.width,
                                .by_row = context.shape.is_cached(),
                                .workspace = context.scratch(operands.scratch)});
  }
}

ProjectionOperands branch_operands(const SegmentContext& context, int64_t inputs,
                                   const model::Span& scratch) {
  return {.projections = context.layout.out_of,
          .inputs = inputs,
          .width = context.architecture.hidden,
          .scratch = scratch,
          .with_bias = context.brings_shared_grads()};
}

void project_input_grad(const SegmentContext& context, const ProjectionOperands& operands,
                        ConstInterior dy, Interior dx, bool accumulate) {
  for (const model::Projection& one : operands.projections) {
    context.ops.matmul_input(context.queue, {.dtype = context.dtype,
                                             .rows = context.tokens(),
                                             .outputs = one.outputs,
                                             .inputs = operands.inputs,
                                             .dy = dy + one.column,
                                             .dy_stride = operands.width,
                                             .w = context.weight(one.offset),
                                             .dx = dx,
                                             .accumulate = std::exchange(accumulate, true),
                                             .workspace = context.scratch(operands.scratch)});
  }
}

namespace {

// The gradient of a bias whose matrix is frozen: a product with a column of ones.
void bias_grad_alone(const SegmentContext& context, const ProjectionOperands& operands,
                     const model::Projection& one, ConstInterior dy) {
  const Interior ones = context.workspace(context.layout.ones);
  context.ops.fill(context.queue, {.count = context.tokens(), .value = 1.0f, .y = ones});
  context.ops.matmul_weight(context.queue, {.rows = context.tokens(),
                                            .outputs = one.outputs,
                                            .inputs = 1,
                                            .dy = dy + one.column,
                                            .dy_stride = operands.width,
                                            .x = ones,
                                            .dw = context.bias_grad(one),
                                            .accumulate = !context.call.grad_first,
                                            .workspace = context.scratch(operands.scratch)});
}

}  // namespace

void hold(const SegmentContext& context, ConstInterior x, const model::Span& later) {
  if (!context.delays()) return;
  std::byte* to = static_cast<std::byte*>(context.call.operands) + later.offset;
  if (x.data != to) context.queue.copy(to, x.data, later.bytes);
}

void project_weight_grad(const SegmentContext& context, const ProjectionOperands& operands,
                         ConstInterior dy, ConstInterior x) {
  if (context.call.grad == nullptr) return;  // or delayed
  for (const model::Projection& one : operands.projections) {
    float* dw = context.grad(one);
    float* dbias = operands.with_bias ? context.bias_grad(one) : nullptr;
    if (dw == nullptr && dbias != nullptr) bias_grad_alone(context, operands, one, dy);
    if (dw == nullptr) continue;
    context.ops.matmul_weight(context.queue, {.rows = context.tokens(),
                                              .outputs = one.outputs,
                                              .inputs = operands.inputs,
                                              .dy = dy + one.column,
                                              .dy_stride = operands.width,
                                              .x = x,
                                              .dw = dw,
                                              .dbias = dbias,
                                              .accumulate = !context.call.grad_first,
                                              .workspace = context.scratch(operands.scratch)});
  }
}

void norm_rows(const SegmentContext& context, const void* x, int64_t rows, Interior y,
               float* rstd) {
  const model::Architecture& a = context.architecture;
  if (a.norm == model::Norm::kLayer) {
    context.ops.layer_norm_forward(context.queue, {.dtype = context.dtype,
                                                   .rows = rows,
                                                   .cols = a.hidden,
                                                   .x = x,
                                                   .w = context.weight(ParameterRole::kNorm),
                                                   .b = context.weight(ParameterRole::kNormBias),
                                                   .y = y,
                                                   .mean = rstd == nullptr ? nullptr : rstd + rows,
                                                   .rstd = rstd,
                                                   .eps = static_cast<float>(a.norm_eps)});
    return;
  }
  context.ops.rms_norm_forward(context.queue, {.dtype = context.dtype,
                                               .rows = rows,
                                               .cols = a.hidden,
                                               .x = x,
                                               .w = context.weight(ParameterRole::kNorm),
                                               .offset = context.norm_offset(),
                                               .y = y,
                                               .rstd = rstd,
                                               .eps = static_cast<float>(a.norm_eps)});
}

void norm_input(const SegmentContext& context, Interior y, float* rstd) {
  norm_rows(context, context.input_rows(), context.tokens(), y, rstd);
}

void norm_own_input(const SegmentContext& context, Interior copy, float* rstd) {
  if (context.own_rows.count == 0) return;
  norm_rows(context, context.call.input, context.own_rows.count, copy, rstd);
}

void norm_input_grad(const SegmentContext& context, const float* rstd, ConstInterior dy,
                     const void* residual) {
  const int64_t rows = context.own_rows.count;
  if (rows == 0) return;
  void* dx = context.call.grad_input;
  if (context.architecture.norm == model::Norm::kLayer) {
    context.ops.layer_norm_backward(
        context.queue, {.dtype = context.dtype,
                        .rows = rows,
                        .cols = context.architecture.hidden,
                        .x = context.call.input,
                        .w = context.weight(ParameterRole::kNorm),
                        .mean = rstd + rows,
                        .rstd = rstd,
                        .dy = dy,
                        .dres = residual,
                        .dx = dx,
                        .dw = context.grad(ParameterRole::kNorm),
                        .db = context.grad(ParameterRole::kNormBias),
                        .accumulate = !context.call.grad_first,
                        .workspace = context.scratch(context.layout.backward_scratch)});
    return;
  }
  context.ops.rms_norm_backward(context.queue,
                                {.dtype = context.dtype,
                                 .rows = rows,
                                 .cols = context.architecture.hidden,
                                 .x = context.call.input,
                                 .w = context.weight(ParameterRole::kNorm),
                                 .offset = context.norm_offset(),
                                 .rstd = rstd,
                                 .dy = dy,
                                 .dres = residual,
                                 .dx = dx,
                                 .dw = context.grad(ParameterRole::kNorm),
                                 .accumulate = !context.call.grad_first,
                                 .workspace = context.scratch(context.layout.backward_scratch)});
}

namespace {

// Rows of a boundary tensor, converted to the interior type.
ConstInterior inside(const SegmentContext& context, const void* boundary, int64_t rows,
                     Interior copy) {
  if (context.dtype == context.interior) return {boundary, context.interior};
  context.ops.cast(context.queue, {.dtype = context.dtype,
                                   .count = rows * context.architecture.hidden,
                                   .x = boundary,
                                   .y = copy});
  return copy;
}

// y = x + a, of own rows.
void add_to(const SegmentContext& context, const void* x, ConstInterior a, void* y) {
  if (context.own_rows.count == 0) return;
  context.ops.add_residual(
      context.queue,
      {.dtype = context.dtype, .count = context.own_count(), .x = x, .a = a, .y = y});
}

}  // namespace

ConstInterior branch_input(const SegmentContext& context, Interior copy, float* rstd) {
  if (!context.architecture.block.pre_norm) {
    return inside(context, context.input_rows(), context.tokens(), copy);
  }
  norm_input(context, copy, rstd);
  return copy;
}

void branch_input_grad(const SegmentContext& context, const float* rstd, ConstInterior dy) {
  const SegmentCall& call = context.call;
  if (context.architecture.block.pre_norm) {
    norm_input_grad(context, rstd, dy, call.grad_output);
  } else if (call.grad_input != nullptr) {
    add_to(context, call.grad_output, dy, call.grad_input);
  }
}

void finish_branch_grad(const SegmentContext& context,
                        std::initializer_list<ProductGrad> products) {
  const model::SegmentLayout& layout = context.layout;
  const bool sums = context.parts.sums_branch;
  const Interior grad = sums ? context.branch() : context.workspace(layout.grad);
  float* rstd = sums ? nullptr : context.workspace_floats(layout.rstd);
  const ConstInterior input =
      branch_input(context, context.operand_or(layout.branch, layout.later_input), rstd);
  hold(context, input, layout.later_input);
  bool accumulate = false;
  for (const ProductGrad& product : products) {
    hold(context, product.grad, product.later);
    project_weight_grad(context, product.into, product.grad, input);
    project_input_grad(context, product.into, product.grad, grad, accumulate);
    accumulate = true;
  }
  if (!sums) branch_input_grad(context, rstd, grad);
}

void finish_branch_sum_grad(const SegmentContext& context) {
  float* rstd = context.workspace_floats(context.layout.rstd);
  if (context.architecture.block.pre_norm) {
    norm_own_input(context, context.workspace(context.layout.branch), rstd);
  }
  branch_input_grad(context, rstd, context.own_branch());
}

Interior branch_output(const SegmentContext& context, std::byte* interior) {
  if (context.parts.sums_branch) return context.branch();
  if (context.architecture.block.post_norm) return context.part(interior, context.layout.unnormed);
  return context.workspace(context.layout.normed);
}

void finish_branch(const SegmentContext& context, std::byte* interior) {
  if (context.own_rows.count == 0) return;
  Interior branch = context.own_of(branch_output(context, interior));
  if (context.architecture.block.post_norm) {
    const Interior unnormed = context.part(interior, context.layout.unnormed);
    if (context.parts.sums_branch) {
      context.ops.cast(
          context.queue,
          {.dtype = DType::kF32, .count = context.own_count(), .x = branch.data, .y = unnormed});
    }
    branch = context.workspace(context.layout.normed);
    context.ops.rms_norm_forward(context.queue,
                                 {.dtype = context.dtype,
                                  .inside = true,
                                  .rows = context.own_rows.count,
                                  .cols = context.architecture.hidden,
                                  .x = unnormed.data,
                                  .w = context.weight(ParameterRole::kPostNorm),
                                  .offset = context.norm_offset(),
                                  .y = branch,
                                  .rstd = floats_part(interior, context.layout.post_rstd),
                                  .eps = static_cast<float>(context.architecture.norm_eps)});
  }
  if (context.call.output != nullptr) {
    add_to(context, context.call.input, branch, context.call.output);
  }
}

bool ends_before_output(const SegmentContext& context) {
  if (context.parts.sums_branch) return context.call.branch == nullptr;
  return context.call.output == nullptr && !context.architecture.block.post_norm;
}

namespace {

// The backward of the norm behind the branch, of own rows.
void post_norm_grad(const SegmentContext& context, ConstInterior dy, Interior dx) {
  std::byte* interior = static_cast<std::byte*>(context.call.interior);
  context.ops.rms_norm_backward(context.queue,
                                {.dtype = context.dtype,
                                 .inside = true,
                                 .rows = context.own_rows.count,
                                 .cols = context.architecture.hidden,
                                 .x = context.part(interior, context.layout.unnormed).data,
                                 .w = context.weight(ParameterRole::kPostNorm),
                                 .offset = context.norm_offset(),
                                 .rstd = floats_part(interior, context.layout.post_rstd),
                                 .dy = dy,
                                 .dx = dx.data,
                                 .dw = context.grad(ParameterRole::kPostNorm),
                                 .accumulate = !context.call.grad_first,
                                 .workspace = context.scratch(context.layout.backward_scratch)});
}

}  // namespace

ConstInterior branch_output_grad(const SegmentContext& context, Interior copy) {
  const void* rows = context.output_grad_rows();
  ConstInterior grad = {rows, context.interior};
  if (!context.parts.norms_branch) {
    grad = inside(context, rows, context.tokens(), copy);
    if (context.architecture.block.post_norm) {
      post_norm_grad(context, grad, copy);
      grad = copy;
    }
  }
  hold(context, grad, context.layout.later_grad);
  return grad;
}

void own_branch_grad(const SegmentContext& context) {
  const int64_t rows = context.own_rows.count;
  if (rows == 0) return;
  const ConstInterior grad =
      inside(context, context.call.grad_output, rows, context.workspace(context.layout.grad));
  post_norm_grad(context, grad, context.own_of({context.call.row_grads, context.interior}));
}

bool needs_no_input_grad(const SegmentContext& context) {
  const bool norms = context.trains_norm() || context.grad(ParameterRole::kQueryNorm) != nullptr ||
                     context.grad(ParameterRole::kKeyNorm) != nullptr;
  return context.call.grad_input == nullptr && !norms && !context.parts.sums_branch &&
         std::all_of(context.layout.into.begin(), context.layout.into.end(),
                     [&](const model::Projection& one) {
                       return !context.trains(one) && !context.trains_bias(one);
                     });
}

namespace {

// Whether this part stores all of a parameter's gradient where there is none yet.
bool stores_all(const SegmentContext& context, const model::Parameter& parameter) {
  using enum ParameterRole;
  const model::Parts& parts = context.parts;
  const int part = context.call.part;
  const bool delayed = context.delays();  // all products are one op, and norms come at the end
  const bool alone = context.brings_shared_grads();
  const bool has_rows = context.own_rows.count > 0;
  switch (parameter.role) {
    case kNorm:
    case kNormBias:
      return !delayed && part == parts.loss_last() && has_rows;
    case kPostNorm:
      return !delayed && part == parts.backward_last() && has_rows;
    case kQueryNorm:
    case kKeyNorm:
      return !delayed && part == parts.backward_branch();
    case kOutput:
    case kDown:
      return delayed || part == parts.backward_first();
    case kOutputBias:
    case kDownBias:
      return (delayed || part == parts.backward_first()) && alone;
    case kPosition:
      return alone;
    case kEmbedding:
    case kHead:
      return true;
    default:  // whole keys and values of a slice are those of several ranks
      return (delayed || part == parts.backward_branch()) && !parameter.whole;
  }
}

}  // namespace

void zero_padding(const SegmentContext& context, const model::Segment& segment, float* grad) {
  int64_t end = 0;
  const auto zero_to = [&](int64_t next) {
    STRATA_CHECK(next >= end);
    if (next > end)
      context.ops.fill(context.queue, {.count = next - end, .value = 0.0f, .y = grad + end});
  };
  for (const model::Parameter& parameter : segment.parameters) {
    if (parameter.frozen || !stores_all(context, parameter)) continue;
    zero_to(parameter.offset);
    end = parameter.offset + parameter.numel;
  }
  zero_to(segment.trainable_numel);
}

void block_weight_gradient(const SegmentContext& context) {
  const model::Architecture& a = context.architecture;
  const model::SegmentLayout& layout = context.layout;
  const bool attends = context.segment.kind == model::SegmentKind::kAttention;
  const int64_t branch = attends ? a.heads * a.head_size : a.feed_forward;
  const ConstInterior input = context.operand(layout.later_input);
  project_weight_grad(context, branch_operands(context, branch, layout.backward_scratch),
                      context.operand(layout.later_grad), context.operand(layout.later_branch));
  project_weight_grad(context, {layout.into, a.hidden, layout.width, layout.backward_scratch},
                      context.operand(layout.later_inner), input);
  const ConstInterior keys = {context.operand(layout.later_keys).data, DType::kF32};
  project_weight_grad(
      context, {layout.keys, a.hidden, context.keys_width(), layout.backward_scratch}, keys, input);
  if (context.call.norm_grads == nullptr) return;
  for (const model::Parameter* norm : model::trained_norms(context.segment)) {
    context.queue.copy(context.call.grad + norm->offset, context.norm_grad(*norm),
                       norm->numel * bytes_of(DType::kF32));
  }
}

void zero_beside_matrix(const SegmentContext& context, const model::Segment& owner) {
  for (const model::Parameter& parameter : owner.parameters) {
    if (parameter.frozen || parameter.role == ParameterRole::kEmbedding) continue;
    context.ops.fill(context.queue, {.count = parameter.numel,
                                     .value = 0.0f,
                                     .y = context.call.shared_grad + parameter.offset});
  }
}

}  // namespace strata::exec
