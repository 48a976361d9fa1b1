// SPDX-License-Identifier: Apache-2.0
// Segments whose home is the device: how their state gets there, is saved, and what of their norms
// the host needs.
#include "engine/plan/builder_internal.h"

namespace strata::plan {

// What of a chunk is in its slot: weights, then state.
StateSlot Builder::staged_state(const Piece& weights, int64_t slot) const {
  return {Arena::kHost, slot + weights.count * width_of(Plane::kHi, plan_.recipe)};
}

// Between the slot and the chunk's places on the device.
void Builder::move_chunk(OpKind kind, int chunk, const Piece& weights, int64_t slot) {
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

void Builder::load_home(int segment) {
  const Place& home = map_.segments[segment].device_hi;
  for (int c = plan_.layout.first_chunk[segment]; c < plan_.layout.first_chunk[segment + 1]; ++c) {
    const Piece weights = weights_piece(plan_, c);
    const int64_t slot = state_ring_.take(staging_bytes(plan_, c), c);
    convert(Lane::kOptimizer, c, slot, staged_state(weights, slot));
    move_chunk(OpKind::kUpload, c, weights, slot);
    state_ring_.release(c);
  }
  if (plan_.mesh.weight_shards() > 1) gather_weights(segment, home, home, Generation::kOld);
}

void Builder::save_home(int chunk) {
  const Piece weights = state_piece(plan_, chunk);
  const int64_t slot = state_ring_.take(staging_bytes(plan_, chunk), chunk);
  move_chunk(OpKind::kDownload, chunk, weights, slot);
  save(chunk, slot, staged_state(weights, slot));
  state_ring_.release(chunk);
}

Access Builder::norm_access(Mode mode, int segment, Arena arena, int reduced) const {
  const int chunks = plan_.layout.first_chunk[segment + 1] - plan_.layout.first_chunk[segment];
  return {.mode = mode,
          .arena = arena,
          .offset = arena == Arena::kDevice ? map_.device_norm[segment] : map_.norm[segment],
          .bytes = kNormBytes * chunks * plan_.layout.shard_count,
          .value = {.kind = ValueKind::kNormPartial,
                    .reduced = static_cast<uint8_t>(reduced),
                    .segment = segment}};
}

void Builder::pass_norm(Op& op, const Access& from, const Access& to) {
  emit_.access(from);
  emit_.access(to);
  op.bytes += from.bytes;
}

// In one transfer, when the last is known.
void Builder::download_norms() {
  std::vector<int> segments;
  for (int s = 0; s < static_cast<int>(input_.spec->segments.size()); ++s) {
    if (is_trainable(s) && is_home(s)) segments.push_back(s);
  }
  if (segments.empty()) return;
  Op& op = emit_.open(OpKind::kDownload, Lane::kDownload, -1);
  for (const int s : segments) {
    pass_norm(op, norm_access(Mode::kRead, s, Arena::kDevice, 0),
              norm_access(Mode::kWrite, s, Arena::kControl, 0));
  }
  emit_.close();
}

// Every rank sums squares of its own parts, and decides from all.
void Builder::reduce_norms() {
  if (plan_.mesh.norm_reductions() == 0) return;
  Op& op = emit_.open(OpKind::kReduce, Lane::kComm, -1);
  op.group = GroupName::kShard;
  for (int s = 0; s < static_cast<int>(input_.spec->segments.size()); ++s) {
    if (!is_trainable(s)) continue;
    pass_norm(op, norm_access(Mode::kRead, s, Arena::kControl, 0),
              norm_access(Mode::kWrite, s, Arena::kControl, 1));
  }
  emit_.close();
}

}  // namespace strata::plan
