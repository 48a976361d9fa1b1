// SPDX-License-Identifier: Apache-2.0
// Forward and backward, layer-major: every unit runs all micro-batches before the next.
#include <algorithm>

#include "engine/plan/builder_internal.h"

namespace strata::plan {
const model::Footprint& Builder::footprint(int segment) const {
  return footprints_[segment];
}

void Builder::scratch(int64_t bytes) {
  emit_.write(compute_arena(), map_.scratch, bytes, 0, {.kind = ValueKind::kScratch});
}

void Builder::interior(Mode mode, int segment, int micro_batch) {
  const int64_t bytes = footprint(segment).interior_bytes;
  if (bytes == 0) return;
  const int64_t at = map_.interior[segment][micro_batch];
  const Value value = {.kind = ValueKind::kInterior, .segment = segment, .index = micro_batch};
  if (mode == Mode::kRead) {
    emit_.read(compute_arena(), at, bytes, 0, value);
  } else {
    emit_.write(compute_arena(), at, bytes, 0, value);
  }
}

// Only the step keeps interiors: it is the program that has a backward.
void Builder::forward_micro_batch(int segment, int micro_batch, Generation generation) {
  const model::Segment& at = segment_of(segment);
  bring_activation(segment, micro_batch);
  take_activation(segment + 1, micro_batch);
  Op& op = emit_.open(OpKind::kForward, Lane::kCompute, segment);
  op.unit = at.unit;
  op.micro_batch = micro_batch;
  op.flops = footprint(segment).forward_flops;
  op.keeps = in_step_ && placement_.keep[at.unit] && footprint(segment).interior_bytes > 0;
  const bool keeps = op.keeps;
  read_weights(segment, generation);
  if (at.kind == model::SegmentKind::kEmbedding) {
    read_given(ValueKind::kTokens, micro_batch);
  } else {
    read_activation(segment, micro_batch);
  }
  read_rope(segment);
  write_activation(segment + 1, micro_batch);
  if (keeps) interior(Mode::kWrite, segment, micro_batch);
  scratch(footprint(segment).forward_workspace_bytes);
  emit_.close();
  release_activation(segment, micro_batch);
  keep_activation(segment + 1, micro_batch);
}

void Builder::head_micro_batch(int segment, int micro_batch, Generation generation, OpKind kind) {
  const model::Segment& at = segment_of(segment);
  Op& op = emit_.open(kind, Lane::kCompute, segment);
  op.unit = at.unit;
  op.micro_batch = micro_batch;
  op.flops =
      kind == OpKind::kLoss ? footprint(segment).backward_flops : footprint(segment).forward_flops;
  read_weights(segment, generation);
  if (at.shares >= 0) read_weights(at.shares, generation);
  read_activation(segment, micro_batch);
  if (kind == OpKind::kLogits) {
    read_given(ValueKind::kPositions, 0);
    write_result(ValueKind::kLogits, 0);
  } else {
    read_given(ValueKind::kTargets, micro_batch);
    write_result(ValueKind::kLossSum, micro_batch);
  }
  if (kind == OpKind::kLoss) {
    emit_.write(compute_arena(), map_.activation_gradient[micro_batch],
                boundary_tensor_bytes(input_), 0, activation_gradient_value(segment, micro_batch));
    add_gradient(segment);
    if (at.shares >= 0) add_gradient(at.shares);
    scratch(footprint(segment).backward_workspace_bytes);
  } else {
    scratch(footprint(segment).forward_workspace_bytes);
  }
  emit_.close();
}

// One segment of the forward pass, all micro-batches; the head's is the loss and its backward.
void Builder::forward_segment(int segment, Generation generation) {
  const model::Segment& at = segment_of(segment);
  const bool update = input_.update().waits && is_trainable(segment);
  acquire_weights(segment, generation, update);
  if (at.kind == model::SegmentKind::kHead) {
    acquire_shared(segment, generation);
    spill_behind();
    begin_gradient(segment);
    if (at.shares >= 0) begin_gradient(at.shares);
    for (int m = 0; m < input_.micro_batches; ++m) {
      head_micro_batch(segment, m, generation, OpKind::kLoss);
    }
    give_results(ValueKind::kLossSum, input_.micro_batches);
    finish_gradient(segment);
    if (at.shares >= 0) release_weights(at.shares);
  } else {
    for (int m = 0; m < input_.micro_batches; ++m) forward_micro_batch(segment, m, generation);
  }
  release_weights(segment);
}

void Builder::recompute(int segment, int micro_batch, Generation generation) {
  Op& op = emit_.open(OpKind::kRecompute, Lane::kCompute, segment);
  op.unit = segment_of(segment).unit;
  op.micro_batch = micro_batch;
  op.flops = footprint(segment).forward_flops;  // it also makes the next segment's input
  read_weights(segment, generation);
  read_activation(segment, micro_batch);
  read_rope(segment);
  interior(Mode::kWrite, segment, micro_batch);
  write_activation(segment + 1, micro_batch);
  scratch(footprint(segment).recompute_workspace_bytes);
  emit_.close();
}

void Builder::backward_micro_batch(int segment, int micro_batch, Generation generation,
                                   bool recomputes) {
  Op& op = emit_.open(OpKind::kBackward, Lane::kCompute, segment);
  op.unit = segment_of(segment).unit;
  op.micro_batch = micro_batch;
  op.recomputes = recomputes;
  op.flops =
      footprint(segment).backward_flops + (recomputes ? footprint(segment).recompute_flops : 0);
  const int64_t bytes = boundary_tensor_bytes(input_);
  const int64_t gradient = map_.activation_gradient[micro_batch];
  read_weights(segment, generation);
  read_activation(segment, micro_batch);
  read_rope(segment);
  emit_.read(compute_arena(), gradient, bytes, 0,
             activation_gradient_value(segment + 1, micro_batch));
  if (!recomputes) interior(Mode::kRead, segment, micro_batch);
  interior(Mode::kWrite, segment, micro_batch);  // where backward works, too
  emit_.write(compute_arena(), gradient, bytes, 0, activation_gradient_value(segment, micro_batch));
  add_gradient(segment);
  const model::Footprint& print = footprints_[segment];
  scratch(
      std::max(print.backward_workspace_bytes, recomputes ? print.recompute_workspace_bytes : 0));
  emit_.close();
}

// All of a unit's weights and gradients are live in its backward.
void Builder::backward_unit(int unit, Generation generation) {
  const std::vector<int>& segments = input_.spec->units[unit].segments;
  const bool kept = placement_.keep[unit];
  for (int segment : segments) {
    acquire_weights(segment, generation, false);
    begin_gradient(segment);
  }
  for (int m = 0; m < input_.micro_batches; ++m) {
    bring_activation(segments.front(), m);
    for (size_t i = 0; i + 1 < segments.size() && !kept; ++i) recompute(segments[i], m, generation);
    for (size_t i = segments.size(); i-- > 0;) {
      backward_micro_batch(segments[i], m, generation, !kept && i + 1 == segments.size());
    }
    release_activation(segments.front(), m);
  }
  for (size_t i = segments.size(); i-- > 0;) {
    finish_gradient(segments[i]);
    release_weights(segments[i]);
  }
}

// What the plan does for a segment that a framework computes: its weights are there, its gradient
// has a place. Activations are the framework's own.
void Builder::external_pass(OpKind kind, int segment, int micro_batch, Generation generation) {
  Op& op = emit_.open(kind, Lane::kCompute, segment);
  op.unit = segment_of(segment).unit;
  op.micro_batch = micro_batch;
  read_weights(segment, generation);
  if (kind == OpKind::kBackward) add_gradient(segment);
  emit_.close();
}

void Builder::backward_embedding(int segment) {
  if (!is_trainable(segment)) return;
  begin_gradient(segment);
  for (int m = 0; m < input_.micro_batches; ++m) {
    Op& op = emit_.open(OpKind::kBackward, Lane::kCompute, segment);
    op.unit = segment_of(segment).unit;
    op.micro_batch = m;
    op.flops = footprint(segment).backward_flops;
    emit_.read(compute_arena(), map_.activation_gradient[m], boundary_tensor_bytes(input_), 0,
               activation_gradient_value(segment + 1, m));
    read_given(ValueKind::kTokens, m);
    add_gradient(segment);
    scratch(footprint(segment).backward_workspace_bytes);
    emit_.close();
  }
  finish_gradient(segment);
}

}  // namespace strata::plan
