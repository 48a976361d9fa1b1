// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/weights_path.h"

namespace strata::plan {

WeightsPath::WeightsPath(Building& building)
    : BuilderPiece(building),
      ring_("weights ring", map_.weights_ring, placement_.weights_ring),
      device_ring_("device weights ring", map_.device_weights_ring, placement_.device_weights_ring),
      wholes_(segment_count()),
      parts_(segment_count()) {}

Place WeightsPath::ring_place(int64_t offset) const {
  // On one tier the ring holds whole segments; a discrete device's host ring holds own parts.
  return {Arena::kHost, offset, input_.device.discrete && plan_.mesh.weight_shards() > 1};
}

Place WeightsPath::take(int segment) {
  if (is_home(segment)) return map_.segments[segment].device_hi;
  if (map_.segments[segment].host_hi.exists()) return map_.segments[segment].host_hi;
  int64_t offset = ring_.reuse(segment);
  if (offset >= 0) return ring_place(offset);
  const int64_t bytes = input_.device.discrete ? hi_part_bytes(plan_, input_, segment)
                                               : hi_full_bytes(input_, segment);
  offset = ring_.take(bytes, segment);
  return ring_place(offset);
}

void WeightsPath::convert(Lane lane, int chunk, int64_t weights, const StateSlot& state) {
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

void WeightsPath::fetch_into(int segment, const Place& place, Generation generation) {
  if (map_.segments[segment].nvme_hi.exists()) fetch_stored(segment, place, generation);
  if (!frozen_from_source(segment)) return;
  for (int c = plan_.layout.first_chunk[segment]; c < plan_.layout.first_chunk[segment + 1]; ++c) {
    if (!plan_.layout.chunks[c].frozen) continue;
    const int64_t width = width_of(Plane::kHi, plan_.recipe);
    convert(Lane::kReadWeights, c, place.address(weights_piece(plan_, c), width), {});
  }
}

void WeightsPath::fetch_stored(int segment, const Place& place, Generation generation) {
  const SegmentPlaces& from = map_.segments[segment];
  const int64_t width = width_of(Plane::kHi, plan_.recipe);
  Op& op = emit_.open(OpKind::kFetch, Lane::kReadWeights, segment);
  for (const Piece& piece : pieces_of(plan_.layout, segment, plan_.mesh.weight_shards(),
                                      plan_.mesh.shard_rank(), !input_.frozen_in_source)) {
    const Value value = hi_value(segment, piece_generation(piece, generation));
    const int64_t bytes = piece.count * width;
    emit_.read(Arena::kNvme, from.stored(piece).address(piece, width), bytes, piece.first * width,
               value);
    emit_.write(place.arena, place.address(piece, width), bytes, piece.first * width, value);
    op.bytes += bytes;
  }
  const bool side_depends = placement_.two_sides && generation == Generation::kUpdated;
  if (side_depends) decision(Mode::kRead, Generation::kOld);
  emit_.close();
}

Place WeightsPath::fetch(int segment, Generation generation) {
  const bool resident = is_home(segment) || map_.segments[segment].host_hi.exists();
  const bool cached = !resident && ring_.reuse(segment) >= 0;
  const Place place = take(segment);
  if (!cached && !resident) fetch_into(segment, place, generation);
  return place;
}

void WeightsPath::spill(int segment, const Place& place, const Update& update) {
  const SegmentPlaces& to = map_.segments[segment];
  if (!to.nvme_hi.exists()) return;
  const int64_t width = width_of(Plane::kHi, plan_.recipe);
  Op& op = emit_.open(OpKind::kSpill, Lane::kWrite, segment);
  for (const Piece& piece : pieces_of(plan_.layout, segment, plan_.mesh.weight_shards(),
                                      plan_.mesh.shard_rank(), update.with_frozen)) {
    const Value value = hi_value(segment, piece_generation(piece, update.to));
    const int64_t bytes = piece.count * width;
    emit_.read(place.arena, place.address(piece, width), bytes, piece.first * width, value);
    emit_.write(Arena::kNvme, to.stored(piece).address(piece, width), bytes, piece.first * width,
                value);
    op.bytes += bytes;
  }
  predicate(op, update);
  emit_.close();
}

void WeightsPath::gather(int segment, const Place& from, const Place& to, Generation generation) {
  const int64_t width = width_of(Plane::kHi, plan_.recipe);
  const bool updated_only = plan_.mesh.weight_shards() == 1;
  Op& op = emit_.open(OpKind::kGather, Lane::kComm, segment);
  for (const Piece& piece : pieces_of(plan_.layout, segment, plan_.mesh.shards(),
                                      plan_.mesh.shard_rank(), !updated_only)) {
    const Value value = hi_value(segment, piece_generation(piece, generation));
    emit_.read(from.arena, from.address(piece, width), piece.count * width, piece.first * width,
               value);
  }
  for (const Piece& piece : pieces_of(plan_.layout, segment, 1, 0, !updated_only)) {
    const Value value = hi_value(segment, piece_generation(piece, generation));
    emit_.write(to.arena, to.base + piece.first * width, piece.count * width, piece.first * width,
                value);
    op.bytes += piece.count * width;
  }
  bounce(op, to.arena);
  emit_.close();
}

void WeightsPath::upload(int segment, const Place& from, const Place& to, Generation generation) {
  const int64_t width = width_of(Plane::kHi, plan_.recipe);
  Op& op = emit_.open(OpKind::kUpload, Lane::kUpload, segment);
  for (const Piece& piece : pieces_of(plan_.layout, segment, plan_.mesh.weight_shards(),
                                      plan_.mesh.shard_rank(), true)) {
    const Value value = hi_value(segment, piece_generation(piece, generation));
    const int64_t bytes = piece.count * width;
    emit_.read(from.arena, from.address(piece, width), bytes, piece.first * width, value);
    emit_.write(to.arena, to.base + piece.first * width, bytes, piece.first * width, value);
    op.bytes += bytes;
  }
  emit_.close();
}

void WeightsPath::after_update(int segment, const Place& part, const Update& update) {
  if (plan_.mesh.state_shards() > 1 && plan_.mesh.weight_shards() == 1) {
    gather(segment, part, part, update.to);
  }
  spill(segment, part, update);
}

void WeightsPath::acquire(int segment, Generation generation, const UpdateOwnPart& update) {
  if (segment_of(segment).numel() > 0) {
    if (input_.device.discrete) {
      acquire_discrete(segment, generation, update);
    } else if (plan_.mesh.weight_shards() > 1) {
      acquire_sharded(segment, generation, update);
    } else {
      acquire_whole(segment, generation, update);
    }
  }
}

// One tier, weights not sharded: the slot that is fetched into is the slot that is computed on.
void WeightsPath::acquire_whole(int segment, Generation generation, const UpdateOwnPart& update) {
  const Place place = fetch(segment, update ? Generation::kOld : generation);
  parts_[segment] = wholes_[segment] = place;
  if (update) update(place);
}

// One tier, weights sharded: own parts are fetched into their places in the whole slot, or copied
// there from resident ones, and gathered.
void WeightsPath::acquire_sharded(int segment, Generation generation, const UpdateOwnPart& update) {
  const bool resident = map_.segments[segment].host_hi.exists();
  int64_t offset = ring_.reuse(segment);
  const bool cached = offset >= 0;
  if (!cached) offset = ring_.take(hi_full_bytes(input_, segment), segment);
  const Place whole = {Arena::kHost, offset, false};
  const Place part = resident ? map_.segments[segment].host_hi : whole;
  parts_[segment] = part;
  wholes_[segment] = whole;
  if (cached && !update) return;
  if (!resident && !cached) fetch_into(segment, part, update ? Generation::kOld : generation);
  if (update) update(part);
  gather(segment, part, whole, generation);
}

// A device with memory of its own: own parts come to the host, are updated there, and go up, unless
// the device is their home.
void WeightsPath::acquire_discrete(int segment, Generation generation,
                                   const UpdateOwnPart& update) {
  const Place resident = map_.segments[segment].device_hi;
  Place whole = resident;
  bool cached = resident.exists();
  if (!cached) {
    int64_t offset = device_ring_.reuse(segment);
    cached = offset >= 0;
    if (!cached) offset = device_ring_.take(hi_full_bytes(input_, segment), segment);
    whole = {Arena::kDevice, offset, false};
  }
  wholes_[segment] = whole;
  if (cached && !update) return;
  const Place part = fetch(segment, update ? Generation::kOld : generation);
  parts_[segment] = part;
  if (update) update(part);
  share_on_device(segment, part, whole, generation);
  ring_.release(segment);
}

void WeightsPath::share_on_device(int segment, const Place& part, const Place& whole,
                                  Generation generation) {
  if (!is_home(segment)) upload(segment, part, whole, generation);
  if (plan_.mesh.weight_shards() > 1) gather(segment, whole, whole, generation);
}

void WeightsPath::release(int segment) {
  ring_.release(segment);
  device_ring_.release(segment);
}

void WeightsPath::read(int segment, Generation generation) {
  const model::Segment& at = segment_of(segment);
  const Place& place = wholes_[segment];
  const int64_t width = width_of(Plane::kHi, plan_.recipe);
  const int64_t trainable = at.trainable_numel * width;
  if (at.numel() == 0) return;
  emit_.read(place.arena, place.base, trainable, 0, hi_value(segment, generation));
  emit_.read(place.arena, place.base + trainable, at.frozen_numel * width, trainable,
             hi_value(segment, Generation::kOld));
}

}  // namespace strata::plan
