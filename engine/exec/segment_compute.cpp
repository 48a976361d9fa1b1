// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/segment_compute.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/exec/segment_compute_attention.h"
#include "engine/exec/segment_compute_ops.h"

namespace strata::exec {
namespace {

using model::ParameterRole;
using model::SegmentKind;

// A tensor slice may have no rows whose norms would store anything.
void zero_norms(const SegmentContext& c) {
  const int64_t count = model::norm_gradient_bytes(c.segment) / bytes_of(DType::kF32);
  c.ops.fill(c.queue, {.count = count, .value = 0.0f, .y = {c.call.norm_grads, DType::kF32}});
}

}  // namespace

SegmentCompute::SegmentCompute(const model::ModelSpec& spec, Recipe recipe, model::BatchShape shape,
                               const kernels::Device& device, kernels::Queue& queue)
    : spec_(spec), recipe_(recipe), shape_(shape), device_(device), queue_(queue) {
  STRATA_CHECK(shape.rows > 0 && shape.length > 0 && device.description().threads > 0);
  layouts_.reserve(spec.segments.size());
  for (size_t i = 0; i < spec.segments.size(); ++i) {
    layouts_.push_back(
        model::segment_layout(spec, static_cast<int>(i), shape, recipe, device.description()));
  }
  const model::Architecture& a = spec.architecture;
  STRATA_CHECK(a.position == model::Position::kRope ||
               std::max(shape.positions(), shape.whole_length()) <= a.max_position);
}

SegmentContext SegmentCompute::context(const SegmentCall& call) const {
  STRATA_CHECK(call.segment >= 0 && static_cast<size_t>(call.segment) < layouts_.size());
  const size_t index = static_cast<size_t>(call.segment);
  model::BatchShape shape = shape_;
  if (shape.is_cached()) {
    STRATA_CHECK(call.token_count > 0 && call.token_count <= shape_.length &&
                 call.logit_count <= shape_.cache_rows);
    shape.length = call.token_count;
  }
  return {spec_.architecture,
          spec_.segments[index],
          layouts_[index],
          shape,
          shape_,
          weight_dtype(recipe_),
          device_.description().interior,
          device_.ops(),
          queue_,
          call,
          spec_.tensor,
          model::own_tokens(spec_),
          model::own_rows(spec_, shape_, shape.tokens()),
          model::parts_of(spec_, shape, call.segment)};
}

HeadMatrix SegmentCompute::head_matrix(const SegmentContext& context) const {
  STRATA_CHECK(context.segment.kind == SegmentKind::kHead);
  const SegmentCall& call = context.call;
  if (context.segment.shares < 0) {
    return {context.weight(ParameterRole::kHead), context.grad(ParameterRole::kHead),
            call.grad_first};
  }
  const model::Segment& owner = spec_.segments[static_cast<size_t>(context.segment.shares)];
  const model::Parameter& matrix = model::parameter_of(owner, ParameterRole::kEmbedding);
  const bool trained = call.shared_grad != nullptr && !matrix.frozen;
  return {context.at(call.shared_weights, matrix.offset),
          trained ? call.shared_grad + matrix.offset : nullptr, call.shared_grad_first};
}

void SegmentCompute::forward(const SegmentCall& call) const {
  const SegmentContext c = context(call);
  std::byte* interior = call.interior != nullptr ? static_cast<std::byte*>(call.interior)
                                                 : c.workspace_bytes(c.layout.own_interior);
  STRATA_CHECK(call.output != nullptr || call.branch != nullptr || call.keys != nullptr ||
               call.projected != nullptr || call.sent != nullptr);
  c.segment.kind == SegmentKind::kEmbedding ? embedding_forward(c) : run_block(c, interior);
}

void SegmentCompute::run_block(const SegmentContext& c, std::byte* interior) const {
  const bool attends = c.segment.kind == SegmentKind::kAttention;
  STRATA_CHECK(attends || c.segment.kind == SegmentKind::kMlp);
  if (c.call.part < c.parts.forward_branch()) {
    if (c.parts.swaps_heads) {
      return c.call.part == 0 ? heads_forward(c, interior) : whole_forward(c, interior);
    }
    return c.parts.shares_keys ? keys_forward(c) : norms_forward(c);
  }
  const bool ends = ends_before_output(c);
  if (c.call.part == c.parts.forward_branch()) {
    attends ? attention_forward(c, interior) : mlp_forward(c, interior);
  }
  if (c.call.part == c.parts.last() && !ends) finish_branch(c, interior);
}

void SegmentCompute::recompute(const SegmentCall& call) const {
  const SegmentContext c = context(call);
  STRATA_CHECK(call.interior != nullptr || call.part > 0 || call.keys != nullptr ||
               call.projected != nullptr);
  run_block(c, static_cast<std::byte*>(call.interior));
}

void SegmentCompute::backward(const SegmentCall& call) const {
  const SegmentContext c = context(call);
  if (call.grad != nullptr && call.grad_first) zero_padding(c, c.segment, call.grad);
  if (call.norm_grads != nullptr && call.grad_first) zero_norms(c);
  if (call.part < c.parts.backward_branch()) return finish_branch_sum_grad(c);
  if (call.part > c.parts.backward_first()) return own_branch_grad(c);
  if (c.parts.swaps_heads && call.part < c.parts.backward_first()) {
    return call.part == c.parts.backward_branch() ? heads_backward(c) : whole_backward(c);
  }
  if (c.parts.shares_keys && call.part < c.parts.backward_first()) return keys_backward(c);
  if (c.parts.sums_norms && call.part < c.parts.backward_first()) return norms_backward(c);
  if (c.segment.kind == SegmentKind::kEmbedding) {
    embedding_backward(c);
  } else if (c.segment.kind == SegmentKind::kAttention) {
    attention_backward(c);
  } else {
    STRATA_CHECK(c.segment.kind == SegmentKind::kMlp);
    mlp_backward(c);
  }
}

void SegmentCompute::weight_gradient(const SegmentCall& call) const {
  const SegmentContext c = context(call);
  STRATA_CHECK(call.operands != nullptr && call.grad != nullptr);
  if (call.grad_first) zero_padding(c, c.segment, call.grad);
  block_weight_gradient(c);
}

void SegmentCompute::loss(const SegmentCall& call) const {
  const SegmentContext c = context(call);
  const HeadMatrix matrix = head_matrix(c);
  if (c.parts.shares_scores && call.part == 0) return head_scores(c, matrix);
  if (call.grad != nullptr && call.grad_first) zero_padding(c, c.segment, call.grad);
  if (c.parts.shares_scores && call.part == 2) return head_norm_grad(c);
  if (c.segment.shares >= 0 && call.shared_grad != nullptr && call.shared_grad_first) {
    const model::Segment& owner = spec_.segments[static_cast<size_t>(c.segment.shares)];
    zero_padding(c, owner, call.shared_grad);
    zero_beside_matrix(c, owner);
  }
  head_loss(c, matrix);
}

void SegmentCompute::loss_forward(const SegmentCall& call) const {
  const SegmentContext c = context(call);
  const bool scores = c.parts.shares_scores && call.part == 0;
  scores ? head_scores(c, head_matrix(c)) : head_loss_forward(c, head_matrix(c));
}

void SegmentCompute::logits(const SegmentCall& call) const {
  const SegmentContext c = context(call);
  head_logits(c, head_matrix(c));
}

}  // namespace strata::exec
