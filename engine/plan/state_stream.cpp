// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/state_stream.h"

namespace strata::plan {

void StateStream::load(int chunk, const Place& weights, const Update& stored) {
  const bool resident = map_.state[chunk].exists();
  const bool passes = !plan_.layout.chunks[chunk].frozen && !resident;  // through the ring, to NVMe
  const StateSlot slot = state_at(chunk, passes ? updates_.take_state(chunk, {}) : -1);
  const int64_t width = width_of(Plane::kHi, plan_.recipe);
  weights_.convert(Lane::kOptimizer, chunk, weights.address(weights_piece(plan_, chunk), width),
                   slot);
  if (passes) {
    updates_.spill_state(chunk, slot, stored, StatePart::kAll);
    updates_.ring().release(chunk);
  }
}

void StateStream::save(int chunk, const Place& weights) {
  const bool resident = map_.state[chunk].exists();
  const StateSlot slot = state_at(chunk, resident ? -1 : updates_.take_state(chunk, {}));
  if (!resident) updates_.fetch_state(chunk, slot.base, Generation::kOld);
  const int64_t width = width_of(Plane::kHi, plan_.recipe);
  save_from(chunk, weights.address(state_piece(plan_, chunk), width), slot);
  updates_.ring().release(chunk);
}

void StateStream::save_from(int chunk, int64_t weights, const StateSlot& state) {
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

// What of a chunk is in its slot: weights, then state.
StateSlot StateStream::staged_state(const Piece& weights, int64_t slot) const {
  return {Arena::kHost, slot + weights.count * width_of(Plane::kHi, plan_.recipe)};
}

// Between the slot and the chunk's places on the device.
void StateStream::move_chunk(OpKind kind, int chunk, const Piece& weights, int64_t slot) {
  const shard::Chunk& at = plan_.layout.chunks[chunk];
  const int64_t width = width_of(Plane::kHi, plan_.recipe);
  const bool up = kind == OpKind::kUpload;
  Op& op = emit_.open(kind, up ? Lane::kUpload : Lane::kDownload, at.segment);
  op.chunk = chunk;
  op.chunk_count = 1;
  const auto side = [&](Mode mode, bool host) {
    const int64_t hi = host ? slot : map_.segments[at.segment].device_hi.address(weights, width);
    const Arena arena = host ? Arena::kHost : Arena::kDevice;
    const Value value = hi_value(at.segment, Generation::kOld);
    emit_.access({mode, arena, hi, weights.count * width, weights.first * width, value});
    const int64_t state =
        at.frozen ? 0
                  : state_accesses(mode, host ? staged_state(weights, slot) : map_.state[chunk],
                                   chunk, Generation::kOld);
    return weights.count * width + state;
  };
  op.bytes = side(Mode::kRead, up);
  side(Mode::kWrite, !up);
  emit_.close();
}

void StateStream::load_home(int segment) {
  const Place& home = map_.segments[segment].device_hi;
  for (int c = plan_.layout.first_chunk[segment]; c < plan_.layout.first_chunk[segment + 1]; ++c) {
    const Piece weights = weights_piece(plan_, c);
    const int64_t slot = updates_.ring().take(staging_bytes(plan_, c), c);
    weights_.convert(Lane::kOptimizer, c, slot, staged_state(weights, slot));
    move_chunk(OpKind::kUpload, c, weights, slot);
    updates_.ring().release(c);
  }
  if (plan_.mesh.weight_shards() > 1) weights_.gather(segment, home, home, Generation::kOld);
}

void StateStream::save_home(int chunk) {
  const Piece weights = state_piece(plan_, chunk);
  const int64_t slot = updates_.ring().take(staging_bytes(plan_, chunk), chunk);
  move_chunk(OpKind::kDownload, chunk, weights, slot);
  save_from(chunk, slot, staged_state(weights, slot));
  updates_.ring().release(chunk);
}

}  // namespace strata::plan
