// SPDX-License-Identifier: Apache-2.0
// MLP segment: h = norm(x), out = x + norm((act(h Wg) * (h Wu)) Wd); without a gate act(h Wu) Wd.
// Both norms are optional.
#include "engine/exec/segment_compute_ops.h"

namespace strata::exec {

using kernels::ConstInterior;
using kernels::Interior;

namespace {

// The second projection; null when there is only one.
Interior plain_of(const SegmentContext& context, Interior projected) {
  const model::Architecture& a = context.architecture;
  return a.block.gated ? projected + a.feed_forward : nullptr;
}

void activate(const SegmentContext& context, Interior projected, Interior activated) {
  const int64_t cols = context.architecture.feed_forward;
  context.ops.glu_forward(context.queue, {.activation = context.architecture.activation,
                                          .rows = context.tokens(),
                                          .cols = cols,
                                          .g = projected,
                                          .u = plain_of(context, projected),
                                          .stride = context.layout.width,
                                          .h = activated});
}

}  // namespace

void mlp_forward(const SegmentContext& context, std::byte* interior) {
  const model::Architecture& a = context.architecture;
  const model::SegmentLayout& layout = context.layout;
  const Interior projected = context.part(interior, layout.projected);

  project(context, {layout.into, a.hidden, layout.width, layout.forward_scratch},
          branch_input(context, context.workspace(layout.normed), nullptr), projected);
  if (ends_before_output(context)) return;
  const Interior activated = context.workspace(layout.activated);
  activate(context, projected, activated);
  project(context, branch_operands(context, a.feed_forward, layout.forward_scratch), activated,
          branch_output(context, interior));
}

void mlp_backward(const SegmentContext& context) {
  const model::Architecture& a = context.architecture;
  const model::SegmentLayout& layout = context.layout;
  const ProjectionOperands into = {layout.into, a.hidden, layout.width, layout.backward_scratch};
  const ProjectionOperands out_of =
      branch_operands(context, a.feed_forward, layout.backward_scratch);
  const Interior projected =
      context.part(static_cast<std::byte*>(context.call.interior), layout.projected);

  const ConstInterior grad_branch = branch_output_grad(context, context.workspace(layout.grad));
  const Interior activated = context.operand_or(layout.branch, layout.later_branch);
  if (context.trains(layout.out_of[0])) activate(context, projected, activated);
  project_weight_grad(context, out_of, grad_branch, activated);
  if (needs_no_input_grad(context)) return;
  const Interior grad_activated = context.workspace(layout.inner);
  project_input_grad(context, out_of, grad_branch, grad_activated);

  // In place: gate and up are replaced by their gradients, unless these are wanted later.
  const Interior grad_projected =
      context.delays() ? context.operand(layout.later_inner) : projected;
  context.ops.glu_backward(context.queue, {.activation = a.activation,
                                           .rows = context.tokens(),
                                           .cols = a.feed_forward,
                                           .g = projected,
                                           .u = plain_of(context, projected),
                                           .stride = layout.width,
                                           .dh = grad_activated,
                                           .dg = grad_projected,
                                           .du = plain_of(context, grad_projected),
                                           .d_stride = layout.width});

  finish_branch_grad(context, {{into, grad_projected, layout.later_inner}});
}

}  // namespace strata::exec
