// SPDX-License-Identifier: Apache-2.0
// How gradients are summed, reduced and kept, and how chunks are updated from them.
#include "engine/base/check.h"
#include "engine/plan/builder_internal.h"

namespace strata::plan {

Value Builder::gradient_value(int segment, int index, int reduced) const {
  return {.kind = ValueKind::kGradient,
          .reduced = static_cast<uint8_t>(reduced),
          .segment = segment,
          .index = index};
}

Value Builder::final_gradient(int segment) const {
  return gradient_value(segment, contributions(segment), plan_.mesh.reductions());
}

std::vector<Piece> Builder::gradient_pieces(int segment) const {
  return pieces_of(plan_.layout, segment, plan_.mesh.gradient_shards(), plan_.mesh.shard_rank(),
                   false);
}

// The elements that this rank updates.
std::vector<Piece> Builder::update_pieces(int segment) const {
  return pieces_of(plan_.layout, segment, plan_.mesh.state_shards(), plan_.mesh.shard_rank(),
                   false);
}

void Builder::predicate(Op& op, const Update& update) {
  op.predicate = update.predicate;
  if (update.predicate == Predicate::kPending) decision(Mode::kRead, Generation::kOld);
}

void Builder::decision(Mode mode, Generation generation) {
  emit_.access({.mode = mode,
                .arena = Arena::kControl,
                .offset = map_.decision,
                .bytes = kDecisionBytes,
                .value = {.kind = ValueKind::kDecision, .generation = generation}});
}

// --- updates -------------------------------------------------------------------------------------

int64_t Builder::state_accesses(Mode mode, const StateSlot& slot, int chunk, Generation generation,
                                Part part) {
  const Piece piece = state_piece(plan_, chunk);
  int64_t bytes = 0;
  for (Plane plane : kStatePlanes) {
    if (part != Part::kAll && (plane == Plane::kExpAvgSq) != (part == Part::kLate)) continue;
    const int64_t at = plane_address(plan_, chunk, slot, plane);
    const int64_t width = width_of(plane, plan_.recipe);
    const Value value = {.kind = ValueKind::kPlane,
                         .plane = plane,
                         .generation = generation,
                         .segment = plan_.layout.chunks[chunk].segment};
    if (mode == Mode::kRead) {
      emit_.read(slot.arena, at, piece.count * width, piece.first * width, value);
    } else {
      emit_.write(slot.arena, at, piece.count * width, piece.first * width, value);
    }
    bytes += piece.count * width;
  }
  return bytes;
}

// The ring slot of what an update of this chunk fetches: its state, its gradient, both or none.
int64_t Builder::take_state(int chunk, const Update& update) {
  const int segment = plan_.layout.chunks[chunk].segment;
  int64_t bytes = map_.state[chunk].exists() ? 0 : state_bytes(plan_, chunk);
  if (update.gradient_on_nvme && spills_gradient(input_, placement_, segment)) {
    bytes += state_piece(plan_, chunk).count * kGradientWidth;
  }
  if (bytes == 0) return -1;
  return state_ring_.take(bytes, chunk);
}

void Builder::fetch_state(int chunk, int64_t slot, Generation generation) {
  Op& op = emit_.open(OpKind::kFetch, Lane::kReadState, plan_.layout.chunks[chunk].segment);
  op.chunk = chunk;
  op.chunk_count = 1;
  op.bytes = state_accesses(Mode::kRead, map_.nvme_state[chunk], chunk, generation);
  state_accesses(Mode::kWrite, {Arena::kHost, slot}, chunk, generation);
  emit_.close();
}

void Builder::fetch_gradient(int chunk, int64_t slot, const Update& update) {
  const int segment = plan_.layout.chunks[chunk].segment;
  const Piece piece = state_piece(plan_, chunk);
  const Value value = final_gradient(segment);
  // It waits for the decision, which state does not: on its lane it would hold back the state that
  // is prefetched during backward.
  Op& op = emit_.open(OpKind::kFetch, Lane::kReadWeights, segment);
  op.chunk = chunk;
  op.chunk_count = 1;
  op.bytes = piece.count * kGradientWidth;
  emit_.read(Arena::kNvme, map_.segments[segment].nvme_gradient.address(piece, kGradientWidth),
             op.bytes, piece.first * kGradientWidth, value);
  emit_.write(Arena::kHost, slot, op.bytes, piece.first * kGradientWidth, value);
  predicate(op, update);
  emit_.close();
}

// True where the chunk's exp_avg_sq waits in the room of its gradient until forward is over.
bool Builder::writes_behind(int chunk) const {
  return in_step_ && !map_.state[chunk].exists() &&
         map_.segments[plan_.layout.chunks[chunk].segment].writes_behind;
}

// A chunk's state where it is updated. `slot`: what take_state gave, used where none is resident.
StateSlot Builder::state_at(int chunk, int64_t slot) const {
  return map_.state[chunk].exists() ? map_.state[chunk] : StateSlot{Arena::kHost, slot};
}

// The same after an update.
StateSlot Builder::updated_state(int chunk, int64_t slot) const {
  StateSlot state = state_at(chunk, slot);
  if (writes_behind(chunk)) {
    const Place& room = map_.segments[plan_.layout.chunks[chunk].segment].held_gradient;
    state.exp_avg_sq = room.address(state_piece(plan_, chunk), kGradientWidth);
  }
  return state;
}

// `slot`: what take_state gave.
void Builder::optimize(int chunk, const Place& weights, int64_t slot, const Update& update) {
  const int segment = plan_.layout.chunks[chunk].segment;
  const Piece piece = state_piece(plan_, chunk);
  const int64_t width = width_of(Plane::kHi, plan_.recipe);
  const bool resident = map_.state[chunk].exists();
  const int64_t fetched_gradient = slot + (resident ? 0 : state_bytes(plan_, chunk));
  const Place held =
      input_.update().waits ? map_.segments[segment].held_gradient : final_gradients_[segment];
  const int64_t gradient = held.exists() ? held.address(piece, kGradientWidth) : fetched_gradient;
  const Arena gradient_arena = held.exists() ? held.arena : Arena::kHost;

  const Lane lane = is_home(segment) ? Lane::kUpdate : Lane::kOptimizer;
  Op& op = emit_.open(OpKind::kOptimize, lane, segment);
  op.chunk = chunk;
  op.chunk_count = 1;
  op.bytes = 2 * piece.count * width + 2 * state_bytes(plan_, chunk) + piece.count * kGradientWidth;
  const int64_t at = weights.address(piece, width);
  emit_.read(weights.arena, at, piece.count * width, piece.first * width,
             hi_value(segment, update.from));
  state_accesses(Mode::kRead, state_at(chunk, slot), chunk, update.from);
  emit_.read(gradient_arena, gradient, piece.count * kGradientWidth, piece.first * kGradientWidth,
             final_gradient(segment));
  op.predicate = update.predicate;
  decision(Mode::kRead, Generation::kOld);
  emit_.write(weights.arena, at, piece.count * width, piece.first * width,
              hi_value(segment, update.to));
  state_accesses(Mode::kWrite, updated_state(chunk, slot), chunk, update.to);
  emit_.close();
}

void Builder::spill_state(int chunk, const StateSlot& from, const Update& update, Part part) {
  Op& op = emit_.open(OpKind::kSpill, Lane::kWrite, plan_.layout.chunks[chunk].segment);
  op.chunk = chunk;
  op.chunk_count = 1;
  op.bytes = state_accesses(Mode::kRead, from, chunk, update.to, part);
  state_accesses(Mode::kWrite, map_.nvme_state[chunk], chunk, update.to, part);
  predicate(op, update);
  emit_.close();
}

// What waits in gradients' rooms goes to NVMe, in the order in which backward wants the rooms.
void Builder::spill_behind() {
  const shard::Layout& layout = plan_.layout;
  for (int s = static_cast<int>(input_.spec->segments.size()); s-- > 0;) {
    for (int c = layout.first_chunk[s]; c < layout.first_chunk[s + 1]; ++c) {
      if (layout.chunks[c].frozen || !writes_behind(c)) continue;
      spill_state(c, updated_state(c, -1), update(), Part::kLate);
    }
  }
}

// Updates every trainable chunk of a segment whose own weights lie at `weights`.
void Builder::apply_update(int segment, const Place& weights, const Update& update) {
  const shard::Layout& layout = plan_.layout;
  int last = -1;
  for (int c = layout.first_chunk[segment]; c < layout.first_chunk[segment + 1]; ++c) {
    if (!layout.chunks[c].frozen) last = c;
  }
  for (int c = layout.first_chunk[segment]; c <= last; ++c) {
    if (layout.chunks[c].frozen) continue;
    const bool resident = map_.state[c].exists();
    const int64_t slot = take_state(c, update);
    if (!resident) fetch_state(c, slot, update.from);
    if (update.gradient_on_nvme && spills_gradient(input_, placement_, segment)) {
      fetch_gradient(c, slot + (resident ? 0 : state_bytes(plan_, c)), update);
    }
    optimize(c, weights, slot, update);
    if (c == last) after_update(segment, weights, update);
    if (!resident) {
      spill_state(c, {Arena::kHost, slot}, update, writes_behind(c) ? Part::kEarly : Part::kAll);
    }
    state_ring_.release(c);
  }
}

// --- gradients -----------------------------------------------------------------------------------

void Builder::begin_gradient(int segment) {
  if (!is_trainable(segment) || accumulators_[segment].exists()) return;
  if (map_.segments[segment].accumulator.exists()) {
    accumulators_[segment] = map_.segments[segment].accumulator;
    return;
  }
  SlotRing& ring = input_.device.discrete ? device_gradient_ring_ : gradient_ring_;
  const int64_t offset = ring.take(gradient_full_bytes(input_, segment), segment);
  accumulators_[segment] = {compute_arena(), offset, false};
}

void Builder::add_gradient(int segment) {
  if (!is_trainable(segment)) return;
  const Place& place = accumulators_[segment];
  STRATA_CHECK(place.exists());
  const int64_t bytes = gradient_full_bytes(input_, segment);
  const int done = summed_[segment]++;
  if (done > 0) {
    emit_.read(place.arena, place.base, bytes, 0, gradient_value(segment, done, 0));
  }
  emit_.write(place.arena, place.base, bytes, 0, gradient_value(segment, done + 1, 0));
}

// Sums nest: over the ranks of a copy in their order, then over the copies.
Place Builder::reduce_gradient(int segment) {
  Place place = accumulators_[segment];
  int reduced = 0;
  for (const GroupName group : {GroupName::kShard, GroupName::kReplicate}) {
    if (plan_.mesh.size_of(group) > 1) place = reduce_over(group, segment, place, reduced++);
  }
  return place;
}

// The ranks of a copy bring whole gradients, and copies the parts that are kept of them.
Place Builder::reduce_over(GroupName group, int segment, const Place& from, int reduced) {
  const Place held = map_.segments[segment].held_gradient;
  const Place to = held.exists() && held.arena == from.arena ? held : from;
  const std::vector<Piece> parts = gradient_pieces(segment);
  const Value before = gradient_value(segment, contributions(segment), reduced);
  const Value after = gradient_value(segment, contributions(segment), reduced + 1);
  Op& op = emit_.open(OpKind::kReduce, Lane::kComm, segment);
  op.group = group;
  const auto part = [&](Mode mode, const Place& place, const Piece& piece, const Value& value) {
    const int64_t bytes = piece.count * kGradientWidth;
    emit_.access({mode, place.arena, place.address(piece, kGradientWidth), bytes,
                  piece.first * kGradientWidth, value});
    return bytes;
  };
  if (group == GroupName::kShard) {
    op.bytes = part(Mode::kRead, from, {0, segment_of(segment).trainable_numel, 0, false}, before);
  } else {
    for (const Piece& piece : parts) op.bytes += part(Mode::kRead, from, piece, before);
  }
  for (const Piece& piece : parts) part(Mode::kWrite, to, piece, after);
  emit_.close();
  return to;
}

Place Builder::download_gradient(int segment, const Place& from) {
  Place to = map_.segments[segment].held_gradient;
  if (!to.exists()) {
    const int64_t offset = gradient_ring_.take(gradient_part_bytes(input_, segment), segment);
    to = {Arena::kHost, offset, plan_.mesh.gradient_shards() > 1};
  }
  const Value value = final_gradient(segment);
  Op& op = emit_.open(OpKind::kDownload, Lane::kDownload, segment);
  for (const Piece& piece : gradient_pieces(segment)) {
    const int64_t bytes = piece.count * kGradientWidth;
    emit_.read(from.arena, from.address(piece, kGradientWidth), bytes, piece.first * kGradientWidth,
               value);
    emit_.write(to.arena, to.address(piece, kGradientWidth), bytes, piece.first * kGradientWidth,
                value);
    op.bytes += bytes;
  }
  emit_.close();
  return to;
}

void Builder::norm_partial(int segment, const Place& gradient) {
  const bool home = is_home(segment);
  const Value value = final_gradient(segment);
  const Lane lane = home ? Lane::kUpdate : Lane::kOptimizer;
  Op& op = emit_.open(OpKind::kNormPartial, lane, segment);
  for (const Piece& piece : gradient_pieces(segment)) {
    emit_.read(gradient.arena, gradient.address(piece, kGradientWidth),
               piece.count * kGradientWidth, piece.first * kGradientWidth, value);
    op.bytes += piece.count * kGradientWidth;
  }
  const Arena arena = home ? Arena::kDevice : Arena::kControl;
  emit_.access(norm_access(Mode::kWrite, segment, arena, 0));
  if (home) {
    emit_.write(arena, map_.norm_scratch, map_.norm_scratch_bytes, 0,
                {.kind = ValueKind::kScratch});
  }
  emit_.close();
}

void Builder::spill_gradient(int segment, const Place& gradient) {
  const Place& to = map_.segments[segment].nvme_gradient;
  const Value value = final_gradient(segment);
  Op& op = emit_.open(OpKind::kSpill, Lane::kWrite, segment);
  for (const Piece& piece : update_pieces(segment)) {
    const int64_t bytes = piece.count * kGradientWidth;
    emit_.read(gradient.arena, gradient.address(piece, kGradientWidth), bytes,
               piece.first * kGradientWidth, value);
    emit_.write(Arena::kNvme, to.address(piece, kGradientWidth), bytes,
                piece.first * kGradientWidth, value);
    op.bytes += bytes;
  }
  emit_.close();
}

// The weights of a block or head are still where its backward read them; those of the embedding,
// and of a discrete device that is not their home, are brought to the host again.
void Builder::update_in_backward(int segment, const Place& gradient) {
  final_gradients_[segment] = gradient;
  const bool at_hand =
      !input_.device.discrete && segment_of(segment).kind != model::SegmentKind::kEmbedding;
  const Place part = at_hand ? part_weights_[segment] : fetch_weights(segment, Generation::kOld);
  apply_update(segment, part, update());
  const Place device = map_.segments[segment].device_hi;
  if (device.exists()) share_on_device(segment, part, device, update().to);
  if (!at_hand) weights_ring_.release(segment);
}

void Builder::finish_gradient(int segment) {
  if (!is_trainable(segment)) return;
  STRATA_CHECK(summed_[segment] == contributions(segment));
  Place place = accumulators_[segment];
  if (plan_.mesh.reductions() > 0) place = reduce_gradient(segment);
  if (input_.device.discrete && !is_home(segment)) place = download_gradient(segment, place);
  norm_partial(segment, place);
  if (spills_gradient(input_, placement_, segment)) spill_gradient(segment, place);
  if (!input_.update().waits) update_in_backward(segment, place);
  gradient_ring_.release(segment);
  device_gradient_ring_.release(segment);
  accumulators_[segment] = Place{};
}

// From the norms of all gradients in a step; in a drain, after which no update is pending.
void Builder::decide() {
  if (in_step_) {
    download_norms();
    reduce_norms();
  }
  emit_.open(OpKind::kDecide, Lane::kOptimizer, -1);
  for (int s = 0; s < static_cast<int>(input_.spec->segments.size()) && in_step_; ++s) {
    if (!is_trainable(s)) continue;
    emit_.access(norm_access(Mode::kRead, s, Arena::kControl, plan_.mesh.norm_reductions()));
  }
  decision(Mode::kRead, Generation::kOld);
  decision(Mode::kWrite, Generation::kNew);
  emit_.close();
}

}  // namespace strata::plan
