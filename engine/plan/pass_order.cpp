// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/pass_order.h"

#include <algorithm>

#include "engine/model/stage.h"

namespace strata::plan {

void PassOrder::scratch(int64_t bytes) {
  emit_.write(compute_arena(), map_.scratch, bytes, 0, {.kind = ValueKind::kScratch});
}

void PassOrder::interior(Mode mode, int segment, int micro_batch, int missing) {
  emit_.access({.mode = mode,
                .arena = compute_arena(),
                .offset = map_.interior[segment].empty() ? 0 : map_.interior[segment][micro_batch],
                .bytes = footprint(segment).interior_bytes,
                .value = {.kind = ValueKind::kInterior,
                          .reduced = static_cast<uint8_t>(missing),
                          .segment = segment,
                          .index = micro_batch}});
}

void PassOrder::fill_interior(int segment, int micro_batch, int part) {
  const int missing = parts(segment).last_filling() - part;
  if (part > parts(segment).first_filling()) {
    interior(Mode::kRead, segment, micro_batch, missing + 1);
  }
  interior(Mode::kWrite, segment, micro_batch, missing);
}

void PassOrder::extend_cache(int segment) {
  if (map_.cache[segment] < 0) return;
  const int64_t bytes = model::cache_bytes(*input_.spec, segment, input_.shape, input_.device);
  const Value value = {.kind = ValueKind::kCache, .segment = segment};
  emit_.read(compute_arena(), map_.cache[segment], bytes, 0, value);
  emit_.write(compute_arena(), map_.cache[segment], bytes, 0, value);
}

void PassOrder::read_inputs(int segment, int micro_batch) {
  for (const int from : segment_of(segment).inputs) activations_.read(from, micro_batch);
}

void PassOrder::add_input_gradients(int segment, int micro_batch) {
  for (const int to : segment_of(segment).inputs) {
    activations_.add_gradient(to, segment, micro_batch);
  }
}

// Only the step keeps interiors: it is the program that has a backward.
void PassOrder::forward_micro_batch(int segment, int micro_batch) {
  const model::Segment& at = segment_of(segment);
  for (const int from : at.inputs) activations_.bring(from, micro_batch);
  activations_.take(segment, micro_batch);
  const bool keeps = in_step() && placement_.keep[at.unit] && footprint(segment).interior_bytes > 0;
  pass(OpKind::kForward, segment, micro_batch, {.interior = keeps, .output = true});
  for (const int from : at.inputs) activations_.release(from, micro_batch);
  activations_.keep(segment, micro_batch);
}

// With its weights and inputs.
Op& PassOrder::open_pass(OpKind kind, int segment, int micro_batch, int part) {
  Op& op = emit_.open(kind, Lane::kCompute, segment);
  op.unit = segment_of(segment).unit;
  op.micro_batch = micro_batch;
  op.part = part;
  weights_.read(segment, generation_);
  if (segment_of(segment).kind == model::SegmentKind::kEmbedding) {
    exchange_.read_given(ValueKind::kTokens, micro_batch);
  }
  if (slices() && part <= parts(segment).forward_branch()) {
    read_rows(segment, micro_batch);
  } else {
    read_inputs(segment, micro_batch);
  }
  return op;
}

// A norm of the branch's sum leaves what its backward needs in the interior.
void PassOrder::pass(OpKind kind, int segment, int micro_batch, const Leaves& leaves) {
  const model::Parts parts = this->parts(segment);
  const bool norms_sum = parts.norms_branch;
  const int first = parts.forward_branch();
  const int last = leaves.output || norms_sum ? parts.last() : first;
  if (slices()) gather_rows(segment, micro_batch);
  if (parts.shares_keys) share_keys(kind, segment, micro_batch);
  if (parts.sums_norms) share_norms(kind, segment, micro_batch);
  if (parts.swaps_heads) swap_heads(kind, segment, micro_batch, leaves.interior);
  for (int part = first; part <= last; ++part) {
    if (part > first) sum_slices(ValueKind::kBranch, segment, micro_batch);
    const bool fills = leaves.interior && (part == first || norms_sum);
    Op& op = open_pass(kind, segment, micro_batch, part);
    const model::Footprint& print = footprint(segment);
    if (part == first) op.flops = leaves.output ? print.forward_flops : print.recompute_flops;
    op.keeps = kind == OpKind::kForward && fills;
    if (part == first) {
      exchange_.read_order(segment, micro_batch);
      extend_cache(segment);
      if (parts.shares_keys) {
        share(Mode::kRead, ValueKind::kKeys, Whose::kAll, segment, micro_batch, 1);
      }
      if (parts.sums_norms) {
        norm_parts(Mode::kRead, ValueKind::kProjected, segment, micro_batch);
      }
      if (parts.swaps_heads) swapped(Mode::kRead, ValueKind::kAttended, 1, segment, micro_batch);
    }
    if (part > first) {
      share(Mode::kRead, ValueKind::kBranch, Whose::kOwn, segment, micro_batch, 1);
    }
    if (leaves.output && part == last) activations_.write(segment, micro_batch);
    if (fills) fill_interior(segment, micro_batch, part);
    if (part < last) {
      share(Mode::kWrite, ValueKind::kBranch, Whose::kAll, segment, micro_batch, 0);
    }
    close_pass(kind, segment);
  }
}

// Where the vocabulary is cut, the loss needs the scores of all ranks, and what lies below it the
// sum of their gradients.
void PassOrder::head_micro_batch(int segment, int micro_batch, OpKind kind) {
  if (slices()) gather_rows(segment, micro_batch);
  head_part(segment, micro_batch, kind, 0);
  if (!parts(segment).shares_scores) return;
  if (kind == OpKind::kLogits) return sum_slices(ValueKind::kLogits, segment, micro_batch);
  exchange_shared(OpKind::kGather, GroupName::kTensor, ValueKind::kScores, segment, micro_batch);
  head_part(segment, micro_batch, kind, 1);
  if (kind != OpKind::kLoss) return;
  sum_slices(ValueKind::kBranchGradient, segment, micro_batch);
  head_part(segment, micro_batch, kind, 2);
}

void PassOrder::head_part(int segment, int micro_batch, OpKind kind, int part) {
  const model::Segment& at = segment_of(segment);
  const model::Footprint& print = footprint(segment);
  const bool shares = parts(segment).shares_scores;
  const bool goes_back = kind == OpKind::kLoss && (!shares || part > 0);
  Op& op = emit_.open(kind, Lane::kCompute, segment);
  op.unit = at.unit;
  op.micro_batch = micro_batch;
  op.part = part;
  if (part == 0) op.flops = goes_back ? print.backward_flops : print.forward_flops;
  if (part == 1 && goes_back) op.flops = print.backward_flops;
  weights_.read(segment, generation_);
  if (at.shares >= 0) weights_.read(at.shares, generation_);
  shares&& part < 2 ? read_rows(segment, micro_batch) : read_inputs(segment, micro_batch);
  if (kind == OpKind::kLogits) {
    exchange_.read_given(ValueKind::kPositions, 0);
    exchange_.write_result(ValueKind::kLogits, 0);
  } else {
    if (part < 2) exchange_.read_given(ValueKind::kTargets, micro_batch);
    if (part == (shares ? 1 : 0)) exchange_.write_result(ValueKind::kLossSum, micro_batch);
    if (shares && part == 0)
      share(Mode::kWrite, ValueKind::kScores, Whose::kOwn, segment, micro_batch, 0);
    if (shares && part == 1)
      share(Mode::kRead, ValueKind::kScores, Whose::kAll, segment, micro_batch, 1);
  }
  if (goes_back) add_head_gradients(segment, micro_batch, part);
  if (goes_back && scales_loss(plan_.recipe)) decision(Mode::kRead, Generation::kOld);
  scratch(goes_back ? print.backward_workspace_bytes : print.forward_workspace_bytes);
  emit_.close();
}

// Of the op that is open: those of the matrix, of the norm, and of what the head reads.
void PassOrder::add_head_gradients(int segment, int micro_batch, int part) {
  const int shared = segment_of(segment).shares;
  const bool cuts = parts(segment).shares_scores;
  if (!cuts || part == 2) add_input_gradients(segment, micro_batch);
  if (!cuts || part == 2 || shared < 0) gradients_.add(segment);
  if (shared >= 0 && part < 2) gradients_.add(shared);
  if (!cuts) return;
  constexpr ValueKind kSum = ValueKind::kBranchGradient;
  if (part == 1) return share(Mode::kWrite, kSum, Whose::kAll, segment, micro_batch, 0);
  share(Mode::kRead, kSum, Whose::kOwn, segment, micro_batch, 1);
}

// One segment of the forward pass; the head's is the loss and its backward.
void PassOrder::forward_segment(int segment, const Span& span) {
  const model::Segment& at = segment_of(segment);
  if (!model::is_computed(at.kind)) return;
  acquire_updated(segment);
  if (at.kind == model::SegmentKind::kHead) {
    acquire_shared(segment);
    if (span.first == 0) updates_.spill_behind();
    gradients_.begin(segment);
    if (at.shares >= 0) gradients_.begin(at.shares);
    for (int m = span.first; m < span.last; ++m) head_micro_batch(segment, m, OpKind::kLoss);
    if (span.last == input_.micro_batches) {
      exchange_.give_results(ValueKind::kLossSum, input_.micro_batches);
    }
    gradients_.leave(segment);
    if (at.shares >= 0) weights_.release(at.shares);
  } else {
    for (int m = span.first; m < span.last; ++m) forward_micro_batch(segment, m);
  }
  weights_.release(segment);
}

void PassOrder::acquire_updated(int segment) {
  const bool first = in_step() && used_[segment] == 0;
  if (in_step()) used_[segment] = 1;
  if (!first || !input_.update().waits || !is_trainable(segment)) {
    return weights_.acquire(segment, generation_);
  }
  weights_.acquire(segment, generation_,
                   [&](const Place& part) { updates_.apply(segment, part, update()); });
}

void PassOrder::acquire_shared(int segment) {
  const int shared = segment_of(segment).shares;
  if (shared >= 0) weights_.acquire(shared, generation_);
}

// The products of a tensor slice read rows of all ranks, and norms own ones.
void PassOrder::read_for_backward(int segment, int micro_batch, int part) {
  const model::Parts parts = this->parts(segment);
  if (slices() && part >= parts.backward_branch() && part <= parts.backward_first()) {
    read_rows(segment, micro_batch);
    return share(Mode::kRead, ValueKind::kRowGradient, Whose::kAll, segment, micro_batch, 1);
  }
  if (part <= parts.backward_first()) read_inputs(segment, micro_batch);
  activations_.read_gradient(segment, micro_batch);
}

void PassOrder::backward_micro_batch(int segment, int micro_batch, bool recomputes) {
  const model::Parts parts = this->parts(segment);
  const int first = parts.backward_first();
  const int products = parts.backward_branch();
  const model::Footprint& print = footprint(segment);
  if (slices()) gather_rows(segment, micro_batch);
  for (int part = parts.backward_last(); part >= 0; --part) {
    exchange_for_backward(segment, micro_batch, part);
    Op& op = emit_.open(OpKind::kBackward, Lane::kCompute, segment);
    op.unit = segment_of(segment).unit;
    op.micro_batch = micro_batch;
    op.part = part;
    op.recomputes = recomputes;
    if (part == first) {
      op.flops = print.backward_flops + (recomputes ? print.recompute_flops : 0) -
                 (delays(segment) ? print.product_flops : 0);
    }
    weights_.read(segment, generation_);
    read_for_backward(segment, micro_batch, part);
    if (part >= products) {
      if (part <= first) exchange_.read_order(segment, micro_batch);
      if (!recomputes) interior(Mode::kRead, segment, micro_batch, 0);
      interior(Mode::kWrite, segment, micro_batch, 0);  // where backward works, too
    }
    share_for_backward(segment, micro_batch, part);
    if (part == 0) add_input_gradients(segment, micro_batch);
    give_gradients(segment, micro_batch, part);
    scratch(
        std::max(print.backward_workspace_bytes, recomputes ? print.recompute_workspace_bytes : 0));
    emit_.close();
  }
}

// All of a unit's weights and gradients are live in its backward, but gradients of delayed products
// in their phase.
void PassOrder::backward_unit(int unit, const Span& span) {
  const std::vector<int>& segments = input_.spec->units[unit].segments;
  const bool kept = placement_.keep[unit];
  const size_t last = segments.size() - 1;
  const bool in_backward =
      parts(segments[last]).backward_last() == 0;  // recomputes the last segment
  for (int segment : segments) {
    weights_.acquire(segment, generation_);
    if (!delays(segment)) gradients_.begin(segment);
  }
  for (int m = span.first; m < span.last; ++m) {
    for (const int from : segment_of(segments.front()).inputs) activations_.bring(from, m);
    for (size_t i = 0; i < segments.size() && !kept; ++i) {
      if (i == last && in_backward) break;
      pass(OpKind::kRecompute, segments[i], m, {.interior = true, .output = i < last});
    }
    for (size_t i = segments.size(); i-- > 0;) {
      // Interiors are without keys, which would take the memory of all context ranks.
      if (parts(segments[i]).shares_keys && shared_keys_ != std::pair(segments[i], m)) {
        share_keys(OpKind::kRecompute, segments[i], m);
      }
      backward_micro_batch(segments[i], m, !kept && i == last && in_backward);
    }
    for (const int from : segment_of(segments.front()).inputs) activations_.release(from, m);
  }
  for (size_t i = segments.size(); i-- > 0;) {
    if (!delays(segments[i])) gradients_.leave(segments[i]);
    weights_.release(segments[i]);
  }
}

void PassOrder::backward_embedding(int segment, const Span& span) {
  if (!is_trainable(segment)) return;
  gradients_.begin(segment);
  for (int m = span.first; m < span.last; ++m) {
    if (slices()) gather_row_gradients(segment, m);
    Op& op = emit_.open(OpKind::kBackward, Lane::kCompute, segment);
    op.unit = segment_of(segment).unit;
    op.micro_batch = m;
    op.flops = footprint(segment).backward_flops;
    if (slices()) {
      share(Mode::kRead, ValueKind::kRowGradient, Whose::kAll, segment, m, 1);
    } else {
      activations_.read_gradient(segment, m);
    }
    exchange_.read_given(ValueKind::kTokens, m);
    gradients_.add(segment);
    scratch(footprint(segment).backward_workspace_bytes);
    emit_.close();
  }
  gradients_.leave(segment);
}

PassOrder::Span PassOrder::span_of(int window, int micro_batches) const {
  const int size = std::max(1, micro_batches / input_.windows.count);
  return {std::min(window * size, micro_batches), std::min((window + 1) * size, micro_batches)};
}

void PassOrder::begin_phase(const StageSchedule& schedule, size_t phase, int micro_batches) {
  phase_ = schedule.phases[phase];
  if (input_.mesh.pipeline == 1) return;
  for (const Phase& sender : schedule.receipts[phase]) {
    exchange(OpKind::kRecv, sender, span_of(sender.window, micro_batches));
  }
  emit_.number_from(first_number_of(phase_.tick));
}

void PassOrder::pass_on(const Span& span) {
  if (phase_.products) return;
  const int end = phase_.backward ? 0 : route().sections() - 1;
  if (phase_.section != end) exchange(OpKind::kSend, phase_, span);
}

// A section has an end toward the one before, where it receives outputs and sends gradients, and
// one toward the next, where it does the opposite.
void PassOrder::exchange(OpKind kind, const Phase& sender, const Span& span) {
  const bool sends = kind == OpKind::kSend;
  const int further = sender.backward ? -1 : 1;
  const model::Section section =
      model::section_of(*input_.spec, sender.section + (sends ? 0 : further));
  const bool at_front = sends == sender.backward;
  const int end = at_front ? section.first_segment : section.end_segment - 1;
  const int of = at_front ? end : segment_of(end).inputs.front();
  for (int m = span.first; m < span.last; ++m) {
    Op& op = emit_.open(kind, Lane::kCommStage, end);
    op.unit = segment_of(end).unit;
    op.group = GroupName::kPipeline;
    op.number = number_of(route(), sender, m - span.first);
    op.micro_batch = m;
    op.bytes = boundary_tensor_bytes(input_);
    if (sender.backward) {
      sends ? activations_.read_gradient(of, m) : activations_.add_gradient(of, end, m);
    } else {
      sends ? activations_.read(of, m) : activations_.write(of, m);
    }
    bounce(op, compute_arena());
    emit_.close();
  }
}

void PassOrder::forward_window(const model::Section& section, const Span& span) {
  for (int s = section.first_segment; s < section.end_segment; ++s) forward_segment(s, span);
}

void PassOrder::backward_window(const model::Section& section, const Span& span) {
  for (int u = section.end_unit; u-- > section.first_unit;) {
    const int first = input_.spec->units[u].segments.front();
    switch (segment_of(first).kind) {
      case model::SegmentKind::kHead:
      case model::SegmentKind::kReceived:
      case model::SegmentKind::kSent:
        break;
      case model::SegmentKind::kEmbedding:
        if (!embeds_at_end(input_)) backward_embedding(first, span);
        break;
      default:
        backward_unit(u, span);
    }
  }
}

void PassOrder::train_windows() {
  const StageSchedule& schedule = building_.ground.step;
  exchange_.take_inputs({ValueKind::kTokens, ValueKind::kTargets}, input_.micro_batches);
  for (size_t p = 0; p < schedule.phases.size(); ++p) {
    begin_phase(schedule, p, input_.micro_batches);
    const Span span = span_of(phase_.window, input_.micro_batches);
    const model::Section section = model::section_of(*input_.spec, phase_.section);
    building_.in_backward = phase_.backward;
    if (phase_.products) {
      products_window(section, span);
    } else {
      phase_.backward ? backward_window(section, span) : forward_window(section, span);
    }
    const bool is_last = section.end_segment == segment_count() && !has_head();
    if (!phase_.backward && span.first == 0 && is_last) updates_.spill_behind();
    pass_on(span);
  }
  if (embeds_at_end(input_)) backward_embedding(0, {0, input_.micro_batches});
}

void PassOrder::train() {
  used_.assign(segment_count(), 0);
  is_external(input_, 0) ? train_external() : train_windows();
}

// Where there are fewer micro-batches than windows, the last windows are empty.
void PassOrder::infer(OpKind head, int micro_batches) {
  if (is_external(input_, 0)) return infer_external(micro_batches);
  const bool logits = head == OpKind::kLogits;
  exchange_.take_inputs({ValueKind::kTokens, logits ? ValueKind::kPositions : ValueKind::kTargets},
                        micro_batches);
  const StageSchedule& schedule = building_.ground.passes;
  for (size_t p = 0; p < schedule.phases.size(); ++p) {
    begin_phase(schedule, p, micro_batches);
    const Span span = span_of(phase_.window, micro_batches);
    // Stages of a pipeline keep their schedule.
    if (input_.mesh.pipeline == 1 && span.first == span.last) continue;
    infer_window(head, model::section_of(*input_.spec, phase_.section), span);
    pass_on(span);
  }
  if (has_head()) {
    exchange_.give_results(logits ? ValueKind::kLogits : ValueKind::kLossSum, micro_batches);
  }
}

void PassOrder::infer_window(OpKind head, const model::Section& section, const Span& span) {
  for (int s = section.first_segment; s < section.end_segment; ++s) {
    if (!model::is_computed(segment_of(s).kind)) continue;
    weights_.acquire(s, generation_);
    const bool is_head = segment_of(s).kind == model::SegmentKind::kHead;
    if (is_head) acquire_shared(s);
    for (int m = span.first; m < span.last; ++m) {
      is_head ? head_micro_batch(s, m, head) : forward_micro_batch(s, m);
    }
    if (is_head && segment_of(s).shares >= 0) weights_.release(segment_of(s).shares);
    weights_.release(s);
  }
}

}  // namespace strata::plan
