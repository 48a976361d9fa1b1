// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/builder_piece.h"

#include "engine/base/check.h"

namespace strata::plan {

Building::Building(const PlanInput& input_in, const Ground& ground_in,
                   const Placement& placement_in)
    : input(input_in),
      placement(placement_in),
      ground(ground_in),
      plan(empty_plan(input_in, ground_in)) {
  for (int s = 0; s < static_cast<int>(input.spec->segments.size()); ++s) {
    const bool delays = delays_products(input.windows, input.spec->segments[s]);
    const int own =
        input.micro_batches * (delays ? 1 : model::backward_ops(*input.spec, input.shape, s));
    contributions.push_back(own + (model::sums_whole(*input.spec, s) ? 1 : 0));
  }
  for (const model::Segment& segment : input.spec->segments) {
    if (segment.shares >= 0) contributions[segment.shares] += input.micro_batches;
  }
  readers.resize(input.spec->segments.size());
  for (int s = 0; s < static_cast<int>(readers.size()); ++s) {
    for (const int from : input.spec->segments[s].inputs) {
      STRATA_CHECK(from >= 0 && from < s && readers[from].size() < 255);
      readers[from].push_back(s);
    }
  }
  map = lay_out(input, ground, placement, plan);
}

// Frozen elements never change.
Generation BuilderPiece::piece_generation(const Piece& piece, Generation generation) const {
  return piece.frozen ? Generation::kOld : generation;
}

Value BuilderPiece::hi_value(int segment, Generation generation) const {
  return {
      .kind = ValueKind::kPlane, .plane = Plane::kHi, .generation = generation, .segment = segment};
}

Value BuilderPiece::gradient_value(int segment, int index, int reduced) const {
  return {.kind = ValueKind::kGradient,
          .reduced = static_cast<uint8_t>(reduced),
          .segment = segment,
          .index = index};
}

Value BuilderPiece::final_gradient(int segment) const {
  return gradient_value(segment, contributions(segment), plan_.mesh.reductions());
}

std::vector<Piece> BuilderPiece::gradient_pieces(int segment) const {
  return pieces_of(plan_.layout, segment, plan_.mesh.gradient_shards(), plan_.mesh.shard_rank(),
                   false);
}

std::vector<Piece> BuilderPiece::update_pieces(int segment) const {
  return pieces_of(plan_.layout, segment, plan_.mesh.state_shards(), plan_.mesh.shard_rank(),
                   false);
}

void BuilderPiece::predicate(Op& op, const Update& update) {
  op.predicate = update.predicate;
  if (update.predicate == Predicate::kPending) decision(Mode::kRead, Generation::kOld);
}

void BuilderPiece::decision(Mode mode, Generation generation) {
  emit_.access({.mode = mode,
                .arena = Arena::kControl,
                .offset = map_.decision,
                .bytes = kDecisionBytes,
                .value = {.kind = ValueKind::kDecision, .generation = generation}});
}

void BuilderPiece::bounce(const Op& op, Arena arena) {
  if (arena != Arena::kDevice) return;
  const BounceBuffer& buffer = map_.bounce[static_cast<size_t>(op.lane)];
  emit_.write(bounce_arena(input_.device), buffer.offset, buffer.bytes, 0,
              {.kind = ValueKind::kScratch});
}

int64_t BuilderPiece::state_accesses(Mode mode, const StateSlot& slot, int chunk,
                                     Generation generation, StatePart part) {
  const Piece piece = state_piece(plan_, chunk);
  int64_t bytes = 0;
  for (Plane plane : kStatePlanes) {
    if (part != StatePart::kAll && (plane == Plane::kExpAvgSq) != (part == StatePart::kLate))
      continue;
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

StateSlot BuilderPiece::state_at(int chunk, int64_t slot) const {
  return map_.state[chunk].exists() ? map_.state[chunk] : StateSlot{Arena::kHost, slot};
}

Access BuilderPiece::norm_access(Mode mode, int segment, Arena arena, int reduced) const {
  const int chunks = plan_.layout.first_chunk[segment + 1] - plan_.layout.first_chunk[segment];
  return {.mode = mode,
          .arena = arena,
          .offset = arena == Arena::kDevice ? map_.device_norm[segment] : map_.norm[segment],
          .bytes = kNormBytes * chunks * plan_.layout.shard_count,
          .value = {.kind = ValueKind::kNormPartial,
                    .reduced = static_cast<uint8_t>(reduced),
                    .segment = segment}};
}

}  // namespace strata::plan
