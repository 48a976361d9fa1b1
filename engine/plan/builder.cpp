// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/builder.h"

#include "engine/base/check.h"
#include "engine/plan/builder_internal.h"

namespace strata::plan {

Builder::Builder(const PlanInput& input, const Ground& ground, const Placement& placement)
    : input_(input), placement_(placement), footprints_(ground.footprints) {
  plan_.recipe = input.recipe;
  plan_.shape = input.shape;
  plan_.micro_batches = input.micro_batches;
  plan_.eval_micro_batches = input.micro_batches;
  plan_.mode = input.mode;
  plan_.device = input.device;
  plan_.mesh = input.mesh;
  plan_.io_depth = input.io_depth;
  plan_.layout = ground.layout;
  plan_.arenas.budget = {input.device_budget, input.host_budget, input.nvme_budget, kNoLimit};
  contributions_.assign(input.spec->segments.size(), input.micro_batches);
  for (const model::Segment& segment : input.spec->segments) {
    if (segment.shares >= 0) contributions_[segment.shares] += input.micro_batches;
  }
  map_ = lay_out(input, ground, placement, plan_);
}

void Builder::begin(ProgramName name) {
  const size_t count = input_.spec->segments.size();
  const bool updates = name == ProgramName::kStep || name == ProgramName::kDrain;
  const size_t chunks = plan_.layout.chunks.size();
  const size_t passes = count * static_cast<size_t>(input_.micro_batches + 1);
  emit_.begin(name, (updates ? 4 : 2) * chunks + 6 * passes,
              (updates ? 32 : 12) * chunks + 32 * passes);
  weights_ring_ = SlotRing("weights ring", map_.weights_ring, placement_.weights_ring);
  state_ring_ = SlotRing("optimizer state ring", map_.state_ring, placement_.state_ring);
  gradient_ring_ = SlotRing("gradient ring", map_.gradient_ring, placement_.gradient_ring);
  activation_ring_ = SlotRing("activation ring", map_.activation_ring, placement_.activation_ring);
  device_weights_ring_ =
      SlotRing("device weights ring", map_.device_weights_ring, placement_.device_weights_ring);
  device_gradient_ring_ =
      SlotRing("device gradient ring", map_.device_gradient_ring, placement_.device_gradient_ring);
  compute_weights_.assign(count, {});
  part_weights_.assign(count, {});
  accumulators_.assign(count, {});
  final_gradients_.assign(count, {});
  summed_.assign(count, 0);
  in_step_ = name == ProgramName::kStep;
  in_backward_ = false;
}

void Builder::put(Generation final_generation, bool accepts_pending, bool leaves_pending) {
  Program program = emit_.finish(in_step_);
  program.final_generation = final_generation;
  program.accepts_pending = accepts_pending;
  program.leaves_pending = leaves_pending;
  plan_.programs[static_cast<size_t>(program.name)] = std::move(program);
}

// Initial or saved state is converted a chunk at a time into the slots that an update would use.
void Builder::emit_load() {
  begin(ProgramName::kLoad);
  take_inputs({ValueKind::kRope}, 0);
  if (!input_.inference) {
    emit_.open(OpKind::kInput, Lane::kOptimizer, -1);
    decision(Mode::kWrite, Generation::kNew);
    emit_.close();
  }
  const Update stored = {
      .from = Generation::kOld, .to = Generation::kOld, .with_frozen = !input_.frozen_in_source};
  for (int s = 0; s < static_cast<int>(input_.spec->segments.size()); ++s) {
    const Place device = map_.segments[s].device_hi;
    const bool lasts = !frozen_from_source(s);
    if (is_home(s)) {
      load_home(s);
      continue;
    }
    if (segment_of(s).numel() == 0 || !(is_trainable(s) || lasts || device.exists())) continue;
    const Place weights = take_weights(s);
    for (int c = plan_.layout.first_chunk[s]; c < plan_.layout.first_chunk[s + 1]; ++c) {
      if (plan_.layout.chunks[c].frozen && !lasts && !device.exists()) continue;
      load_chunk(c, weights, stored);
    }
    spill_weights(s, weights, stored);
    if (device.exists()) share_on_device(s, weights, device, Generation::kOld);
    release_weights(s);
  }
  put(Generation::kOld, false, false);
}

void Builder::load_chunk(int chunk, const Place& weights, const Update& stored) {
  const bool resident = map_.state[chunk].exists();
  const bool passes = !plan_.layout.chunks[chunk].frozen && !resident;  // through the ring, to NVMe
  const StateSlot slot = state_at(chunk, passes ? take_state(chunk, {}) : -1);
  const int64_t width = width_of(Plane::kHi, plan_.recipe);
  convert(Lane::kOptimizer, chunk, weights.address(weights_piece(plan_, chunk), width), slot);
  if (passes) {
    spill_state(chunk, slot, stored, Part::kAll);
    state_ring_.release(chunk);
  }
}

void Builder::convert(Lane lane, int chunk, int64_t weights, const StateSlot& state) {
  const shard::Chunk& at = plan_.layout.chunks[chunk];
  const int64_t width = width_of(Plane::kHi, plan_.recipe);
  const Piece piece = weights_piece(plan_, chunk);
  Op& op = emit_.open(OpKind::kConvert, lane, at.segment);
  op.chunk = chunk;
  op.chunk_count = 1;
  op.bytes = piece.count * width;
  emit_.write(Arena::kHost, weights, piece.count * width, piece.first * width,
              hi_value(at.segment, Generation::kOld));
  if (!at.frozen) state_accesses(Mode::kWrite, state, chunk, Generation::kOld);
  emit_.close();
}

// A framework computes micro-batch by micro-batch, so weights are brought for every pass of it.
void Builder::emit_external() {
  const int count = static_cast<int>(input_.spec->segments.size());
  const Generation generation = input_.update().weights;
  for (int m = 0; m < input_.micro_batches; ++m) {
    for (int s = 0; s < count; ++s) {
      const bool update = m == 0 && input_.update().waits && is_trainable(s);
      acquire_weights(s, generation, update);
      external_pass(OpKind::kForward, s, m, generation);
      release_weights(s);
    }
    for (int s = count; s-- > 0;) {
      acquire_weights(s, generation, false);
      begin_gradient(s);
      external_pass(OpKind::kBackward, s, m, generation);
      if (m + 1 == input_.micro_batches) finish_gradient(s);
      release_weights(s);
    }
  }
}

void Builder::emit_layer_major() {
  const int count = static_cast<int>(input_.spec->segments.size());
  take_inputs({ValueKind::kTokens, ValueKind::kTargets}, input_.micro_batches);
  const Generation generation = input_.update().weights;
  for (int s = 0; s < count; ++s) forward_segment(s, generation);
  in_backward_ = true;
  for (int u = static_cast<int>(input_.spec->units.size()); u-- > 0;) {
    const int first = input_.spec->units[u].segments.front();
    switch (segment_of(first).kind) {
      case model::SegmentKind::kHead:
        break;
      case model::SegmentKind::kEmbedding:
        backward_embedding(first);
        break;
      default:
        backward_unit(u, generation);
    }
  }
}

// Inference has none.
void Builder::emit_step() {
  begin(ProgramName::kStep);
  if (!input_.inference) {
    if (is_external(input_, 0)) {
      emit_external();
    } else {
      emit_layer_major();
    }
    decide();
    for (const Place& place : accumulators_) STRATA_CHECK(!place.exists());
  }
  const UpdateRule& rule = input_.update();
  put(rule.next, rule.waits, rule.waits);
}

void Builder::emit_drain() {
  begin(ProgramName::kDrain);
  const UpdateRule& rule = input_.update();
  if (rule.waits) {
    for (int s = 0; s < static_cast<int>(input_.spec->segments.size()); ++s) {
      if (!is_trainable(s)) continue;
      const Place weights = fetch_weights(s, Generation::kOld);
      apply_update(s, weights, update());
      const Place device = map_.segments[s].device_hi;
      if (device.exists()) share_on_device(s, weights, device, rule.next);
      release_weights(s);
    }
    if (!input_.inference) decide();
  }
  put(rule.waits ? rule.next : Generation::kOld, rule.waits, false);
}

// Forward alone, with the head's loss (eval) or logits (generate, one micro-batch).
void Builder::emit_eval(ProgramName name, OpKind head) {
  begin(name);
  const bool external = is_external(input_, 0);
  const int micro_batches = name == ProgramName::kGenerate ? 1 : plan_.eval_micro_batches;
  for (int m = 0; m < micro_batches && external; ++m) {
    for (int s = 0; s < static_cast<int>(input_.spec->segments.size()); ++s) {
      acquire_weights(s, Generation::kOld, false);
      external_pass(OpKind::kForward, s, m, Generation::kOld);
      release_weights(s);
    }
  }
  if (external) return put(Generation::kOld, false, false);
  const bool logits = head == OpKind::kLogits;
  take_inputs({ValueKind::kTokens, logits ? ValueKind::kPositions : ValueKind::kTargets},
              micro_batches);
  for (int s = 0; s < static_cast<int>(input_.spec->segments.size()); ++s) {
    acquire_weights(s, Generation::kOld, false);
    const bool is_head = segment_of(s).kind == model::SegmentKind::kHead;
    if (is_head) acquire_shared(s, Generation::kOld);
    for (int m = 0; m < micro_batches; ++m) {
      if (is_head) {
        head_micro_batch(s, m, Generation::kOld, head);
      } else {
        forward_micro_batch(s, m, Generation::kOld);
      }
    }
    if (is_head && segment_of(s).shares >= 0) release_weights(segment_of(s).shares);
    release_weights(s);
  }
  give_results(logits ? ValueKind::kLogits : ValueKind::kLossSum, micro_batches);
  put(Generation::kOld, false, false);
}

// Streams every trainable chunk's state of this rank to whoever saves it.
void Builder::emit_checkpoint() {
  begin(ProgramName::kCheckpoint);
  for (int s = 0; s < static_cast<int>(input_.spec->segments.size()); ++s) {
    if (!is_trainable(s)) continue;
    const Place weights = fetch_weights(s, Generation::kOld);
    for (int c = plan_.layout.first_chunk[s]; c < plan_.layout.first_chunk[s + 1]; ++c) {
      if (plan_.layout.chunks[c].frozen) continue;
      if (is_home(s)) {
        save_home(c);
      } else {
        save_chunk(c, weights);
      }
    }
    release_weights(s);
  }
  put(Generation::kOld, false, false);
}

void Builder::save_chunk(int chunk, const Place& weights) {
  const bool resident = map_.state[chunk].exists();
  const StateSlot slot = state_at(chunk, resident ? -1 : take_state(chunk, {}));
  if (!resident) fetch_state(chunk, slot.base, Generation::kOld);
  const int64_t width = width_of(Plane::kHi, plan_.recipe);
  save(chunk, weights.address(state_piece(plan_, chunk), width), slot);
  state_ring_.release(chunk);
}

void Builder::save(int chunk, int64_t weights, const StateSlot& state) {
  const int segment = plan_.layout.chunks[chunk].segment;
  const int64_t width = width_of(Plane::kHi, plan_.recipe);
  const Piece piece = state_piece(plan_, chunk);
  Op& op = emit_.open(OpKind::kSave, Lane::kOptimizer, segment);
  op.chunk = chunk;
  op.chunk_count = 1;
  op.bytes = piece.count * width + state_bytes(plan_, chunk);
  emit_.read(Arena::kHost, weights, piece.count * width, piece.first * width,
             hi_value(segment, Generation::kOld));
  state_accesses(Mode::kRead, state, chunk, Generation::kOld);
  emit_.close();
}

void Builder::fill_boundary() {
  const int64_t hi_width = width_of(Plane::kHi, plan_.recipe);
  const auto hold = [&](const Place& place, const Piece& piece, int64_t width, const Value& value,
                        bool pending) {
    plan_.boundary.push_back({place.arena, place.address(piece, width), piece.count * width,
                              piece.first * width, value, pending});
  };
  for (int s = 0; s < static_cast<int>(input_.spec->segments.size()); ++s) {
    const SegmentPlaces& places = map_.segments[s];
    const Value hi = hi_value(s, Generation::kOld);
    for (const Piece& piece :
         pieces_of(plan_.layout, s, plan_.mesh.weight_shards(), plan_.mesh.shard_rank(), true)) {
      if (places.home || (piece.frozen && frozen_from_source(s))) continue;
      hold(places.host_hi.exists() ? places.host_hi : places.nvme_hi, piece, hi_width, hi, false);
    }
    for (const Piece& piece : pieces_of(plan_.layout, s, 1, 0, true)) {
      if (places.device_hi.exists()) hold(places.device_hi, piece, hi_width, hi, false);
    }
    if (!input_.update().waits) continue;
    const Value gradient = final_gradient(s);
    const bool held = places.held_gradient.exists();
    for (const Piece& piece : held ? gradient_pieces(s) : update_pieces(s)) {
      hold(held ? places.held_gradient : places.nvme_gradient, piece, kGradientWidth, gradient,
           true);
    }
  }
  for (int c = 0; c < static_cast<int>(plan_.layout.chunks.size()); ++c) {
    if (plan_.layout.chunks[c].frozen) continue;
    const StateSlot& slot = map_.state[c].exists() ? map_.state[c] : map_.nvme_state[c];
    const Piece piece = state_piece(plan_, c);
    for (Plane plane : kStatePlanes) {
      const int64_t width = width_of(plane, plan_.recipe);
      const Value value = {
          .kind = ValueKind::kPlane, .plane = plane, .segment = plan_.layout.chunks[c].segment};
      if (width == 0) continue;
      plan_.boundary.push_back({slot.arena, plane_address(plan_, c, slot, plane),
                                piece.count * width, piece.first * width, value, false});
    }
  }
  const Exchange& rope = exchange_of(map_, ValueKind::kRope);
  for (int i = 0; i < rope.count; ++i) {
    plan_.boundary.push_back({compute_arena(),
                              rope.device + i * rope.stride,
                              model::rope_bytes(input_.spec->architecture, i, input_.shape),
                              0,
                              {.kind = ValueKind::kRope, .index = i},
                              false});
  }
  if (input_.inference) return;
  plan_.boundary.push_back(
      {Arena::kControl, map_.decision, kDecisionBytes, 0, {.kind = ValueKind::kDecision}, false});
}

void Builder::emit(ProgramName name) {
  switch (name) {
    case ProgramName::kLoad:
      return emit_load();
    case ProgramName::kStep:
      return emit_step();
    case ProgramName::kDrain:
      return emit_drain();
    case ProgramName::kEval:
      return emit_eval(name, OpKind::kEvaluate);
    case ProgramName::kGenerate:
      return emit_eval(name, OpKind::kLogits);
    case ProgramName::kCheckpoint:
      return emit_checkpoint();
  }
}

Plan Builder::build() {
  for (int i = 0; i < kProgramCount; ++i) emit(static_cast<ProgramName>(i));
  fill_boundary();
  return std::move(plan_);
}

Plan Builder::build_one(ProgramName name) {
  emit(name);
  return std::move(plan_);
}

Plan build_plan(const PlanInput& input, const Placement& placement) {
  return Builder(input, ground_of(input), placement).build();
}

Plan build_program(const PlanInput& input, const Ground& ground, const Placement& placement,
                   ProgramName name) {
  return Builder(input, ground, placement).build_one(name);
}

}  // namespace strata::plan
