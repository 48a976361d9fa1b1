// SPDX-License-Identifier: Apache-2.0
// MLP segment: h = rmsnorm(x), out = x + (silu(h Wg) * (h Wu)) Wd.
#include "engine/exec/segment_compute_ops.h"

namespace strata::exec {
namespace {

void activate(const SegmentContext& context, const float* projected, float* activated) {
  const int64_t cols = context.architecture.feed_forward;
  context.backend.glu_forward({.rows = context.tokens(),
                               .cols = cols,
                               .g = projected,
                               .u = projected + cols,
                               .stride = context.layout.width,
                               .h = activated});
}

float* projected_of(const SegmentContext& context, std::byte* interior) {
  return reinterpret_cast<float*>(interior + context.layout.projected.offset);
}

}  // namespace

void mlp_forward(const SegmentContext& context, std::byte* interior) {
  const model::Architecture& a = context.architecture;
  const model::SegmentLayout& layout = context.layout;
  float* projected = projected_of(context, interior);
  float* normed = context.workspace(layout.normed);

  norm_input(context, normed, nullptr);
  project(context, {layout.into, a.hidden, layout.width, layout.forward_scratch}, normed,
          projected);
  if (context.call.output == nullptr) return;
  float* activated = context.workspace(layout.activated);
  activate(context, projected, activated);
  float* branch = normed;
  project(context, {layout.out_of, a.feed_forward, a.hidden, layout.forward_scratch}, activated,
          branch);
  add_to_residual(context, branch);
}

void mlp_backward(const SegmentContext& context) {
  const model::Architecture& a = context.architecture;
  const model::SegmentLayout& layout = context.layout;
  const ProjectionOperands into = {layout.into, a.hidden, layout.width, layout.backward_scratch};
  const ProjectionOperands out_of = {layout.out_of, a.feed_forward, a.hidden,
                                     layout.backward_scratch};
  float* projected = projected_of(context, static_cast<std::byte*>(context.call.interior));
  float* grad = context.workspace(layout.grad);

  const float* grad_branch = branch_output_grad(context, grad);
  float* activated = context.workspace(layout.branch);
  if (context.grad(layout.out_of[0]) != nullptr) activate(context, projected, activated);
  project_weight_grad(context, out_of, grad_branch, activated);
  if (needs_no_input_grad(context)) return;
  float* grad_activated = context.workspace(layout.inner);
  project_input_grad(context, out_of, grad_branch, grad_activated);

  // In place: gate and up become their gradients.
  float* grad_projected = projected;
  context.backend.glu_backward({.rows = context.tokens(),
                                .cols = a.feed_forward,
                                .g = projected,
                                .u = projected + a.feed_forward,
                                .stride = layout.width,
                                .dh = grad_activated,
                                .dg = grad_projected,
                                .du = grad_projected + a.feed_forward,
                                .d_stride = layout.width});

  float* normed = context.workspace(layout.branch);
  float* rstd = context.workspace(layout.rstd);
  norm_input(context, normed, rstd);
  project_weight_grad(context, into, grad_projected, normed);
  project_input_grad(context, into, grad_projected, grad);
  norm_input_grad(context, rstd, grad, context.call.grad_output);
}

}  // namespace strata::exec
