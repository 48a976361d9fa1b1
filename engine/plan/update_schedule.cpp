// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/update_schedule.h"

namespace strata::plan {

UpdateSchedule::UpdateSchedule(Building& building, WeightsPath& weights)
    : BuilderPiece(building),
      weights_(weights),
      ring_("optimizer state ring", map_.state_ring, placement_.state_ring) {}

int64_t UpdateSchedule::take_state(int chunk, const Update& update) {
  const int segment = plan_.layout.chunks[chunk].segment;
  int64_t bytes = map_.state[chunk].exists() ? 0 : state_bytes(plan_, chunk);
  if (update.gradient_on_nvme && spills_gradient(input_, placement_, segment)) {
    bytes += state_piece(plan_, chunk).count * kGradientWidth;
  }
  if (bytes == 0) return -1;
  return ring_.take(bytes, chunk);
}

void UpdateSchedule::fetch_state(int chunk, int64_t slot, Generation generation) {
  Op& op = emit_.open(OpKind::kFetch, Lane::kReadState, plan_.layout.chunks[chunk].segment);
  op.chunk = chunk;
  op.chunk_count = 1;
  op.bytes = state_accesses(Mode::kRead, map_.nvme_state[chunk], chunk, generation);
  state_accesses(Mode::kWrite, {Arena::kHost, slot}, chunk, generation);
  emit_.close();
}

void UpdateSchedule::fetch_gradient(int chunk, int64_t slot, const Update& update) {
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
bool UpdateSchedule::writes_behind(int chunk) const {
  return in_step() && !map_.state[chunk].exists() &&
         map_.segments[plan_.layout.chunks[chunk].segment].writes_behind;
}

// The same after an update.
StateSlot UpdateSchedule::updated_state(int chunk, int64_t slot) const {
  StateSlot state = state_at(chunk, slot);
  if (writes_behind(chunk)) {
    const Place& room = map_.segments[plan_.layout.chunks[chunk].segment].held_gradient;
    state.exp_avg_sq = room.address(state_piece(plan_, chunk), kGradientWidth);
  }
  return state;
}

// `slot`: what take_state gave.
void UpdateSchedule::optimize(int chunk, const Place& weights, int64_t slot, const Update& update) {
  const int segment = plan_.layout.chunks[chunk].segment;
  const Piece piece = state_piece(plan_, chunk);
  const int64_t width = width_of(Plane::kHi, plan_.recipe);
  const bool resident = map_.state[chunk].exists();
  const int64_t fetched_gradient = slot + (resident ? 0 : state_bytes(plan_, chunk));
  const Place held = input_.update().waits ? map_.segments[segment].held_gradient : update.gradient;
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

void UpdateSchedule::spill_state(int chunk, const StateSlot& from, const Update& update,
                                 StatePart part) {
  Op& op = emit_.open(OpKind::kSpill, Lane::kWrite, plan_.layout.chunks[chunk].segment);
  op.chunk = chunk;
  op.chunk_count = 1;
  op.bytes = state_accesses(Mode::kRead, from, chunk, update.to, part);
  state_accesses(Mode::kWrite, map_.nvme_state[chunk], chunk, update.to, part);
  predicate(op, update);
  emit_.close();
}

void UpdateSchedule::spill_behind() {
  const shard::Layout& layout = plan_.layout;
  for (int s = segment_count(); s-- > 0;) {
    for (int c = layout.first_chunk[s]; c < layout.first_chunk[s + 1]; ++c) {
      if (layout.chunks[c].frozen || !writes_behind(c)) continue;
      spill_state(c, updated_state(c, -1), update(), StatePart::kLate);
    }
  }
}

void UpdateSchedule::apply(int segment, const Place& weights, const Update& update) {
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
    if (c == last) weights_.after_update(segment, weights, update);
    if (!resident) {
      spill_state(c, {Arena::kHost, slot}, update,
                  writes_behind(c) ? StatePart::kEarly : StatePart::kAll);
    }
    ring_.release(c);
  }
}

}  // namespace strata::plan
