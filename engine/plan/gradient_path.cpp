// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/gradient_path.h"

#include "engine/base/check.h"

namespace strata::plan {

GradientPath::GradientPath(Building& building, WeightsPath& weights, UpdateSchedule& updates)
    : BuilderPiece(building),
      weights_(weights),
      updates_(updates),
      ring_("gradient ring", map_.gradient_ring, placement_.gradient_ring),
      device_ring_("device gradient ring", map_.device_gradient_ring,
                   placement_.device_gradient_ring),
      accumulators_(segment_count()),
      summed_(segment_count(), 0),
      norms_summed_(segment_count(), 0) {}

void GradientPath::begin(int segment) {
  if (!is_trainable(segment) || accumulators_[segment].exists()) return;
  if (map_.segments[segment].accumulator.exists()) {
    accumulators_[segment] = map_.segments[segment].accumulator;
    return;
  }
  SlotRing& ring = input_.device.discrete ? device_ring_ : ring_;
  const int64_t offset = ring.take(gradient_full_bytes(input_, segment), segment);
  accumulators_[segment] = {compute_arena(), offset, false};
  if (summed_[segment] > 0) bring_back(segment);
}

// A sum that is not complete.
void GradientPath::bring_back(int segment) {
  const SegmentPlaces& places = map_.segments[segment];
  const Value value = gradient_value(segment, summed_[segment], 0);
  const std::vector<Piece> pieces = update_pieces(segment);
  const auto fetch = [&](const Place& to) {
    move(OpKind::kFetch, Lane::kReadWeights, places.nvme_gradient, to, value, pieces);
  };
  if (!input_.device.discrete) return fetch(accumulators_[segment]);
  Place from = places.held_gradient;
  if (!from.exists()) {
    from = {Arena::kHost, ring_.take(gradient_part_bytes(input_, segment), segment), false};
    fetch(from);
  }
  move(OpKind::kUpload, Lane::kUpload, from, accumulators_[segment], value, pieces);
  ring_.release(segment);
}

void GradientPath::add(int segment) {
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

void GradientPath::norm_gradient(Mode mode, int segment) {
  emit_.access(
      {.mode = mode,
       .arena = compute_arena(),
       .offset = map_.norm_gradient[segment],
       .bytes = footprint(segment).norm_gradient_bytes,
       .value = {
           .kind = ValueKind::kNormGradient, .segment = segment, .index = norms_summed_[segment]}});
}

void GradientPath::read_norms_of(int segment) {
  if (map_.norm_gradient[segment] >= 0) norm_gradient(Mode::kRead, segment);
}

void GradientPath::add_norms(int segment) {
  if (map_.norm_gradient[segment] < 0) return;
  if (norms_summed_[segment] > 0) norm_gradient(Mode::kRead, segment);
  ++norms_summed_[segment];
  norm_gradient(Mode::kWrite, segment);
}

// What all tensor ranks have parts of, at the end of the segment's gradient. For the plan the whole
// gradient is another value then.
void GradientPath::sum_whole(int segment) {
  const Place& place = accumulators_[segment];
  const int64_t bytes = gradient_full_bytes(input_, segment);
  Op& op = emit_.open(OpKind::kReduce, comm_lane_of(GroupName::kTensor), segment);
  op.group = GroupName::kTensor;
  op.bytes = segment_of(segment).whole_numel * kGradientWidth;
  const int done = summed_[segment]++;
  emit_.read(place.arena, place.base, bytes, 0, gradient_value(segment, done, 0));
  emit_.write(place.arena, place.base, bytes, 0, gradient_value(segment, done + 1, 0));
  bounce(op, place.arena);
  emit_.close();
}

// Sums nest: over the ranks of a copy in their order, then over the copies.
Place GradientPath::reduce(int segment) {
  Place place = accumulators_[segment];
  int reduced = 0;
  for (const GroupName group : {GroupName::kShard, GroupName::kReplicate}) {
    if (plan_.mesh.size_of(group) > 1) place = reduce_over(group, segment, place, reduced++);
  }
  return place;
}

// The ranks of a copy bring whole gradients, and copies the parts that are kept of them.
Place GradientPath::reduce_over(GroupName group, int segment, const Place& from, int reduced) {
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
  const int64_t sent = bytes_of(plan_.mesh.reduce_dtype, op.bytes / kGradientWidth);
  const bool goes_back = group != GroupName::kShard || plan_.mesh.gradient_shards() == 1;
  op.bytes = goes_back ? (op.bytes + sent) / 2 : sent;  // sums go back in fp32
  bounce(op, from.arena);
  emit_.close();
  return to;
}

// Its sum, in these pieces, from one memory to another.
void GradientPath::move(OpKind kind, Lane lane, const Place& from, const Place& to,
                        const Value& value, const std::vector<Piece>& pieces) {
  Op& op = emit_.open(kind, lane, value.segment);
  for (const Piece& piece : pieces) {
    const int64_t bytes = piece.count * kGradientWidth;
    const int64_t first = piece.first * kGradientWidth;
    emit_.read(from.arena, from.address(piece, kGradientWidth), bytes, first, value);
    emit_.write(to.arena, to.address(piece, kGradientWidth), bytes, first, value);
    op.bytes += bytes;
  }
  emit_.close();
}

Place GradientPath::download(int segment, const Place& from, const Value& value) {
  Place to = map_.segments[segment].held_gradient;
  if (!to.exists()) {
    const int64_t offset = ring_.take(gradient_part_bytes(input_, segment), segment);
    to = {Arena::kHost, offset, plan_.mesh.gradient_shards() > 1};
  }
  move(OpKind::kDownload, Lane::kDownload, from, to, value, gradient_pieces(segment));
  return to;
}

void GradientPath::norm_partial(int segment, const Place& gradient) {
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

void GradientPath::spill(const Place& gradient, const Value& value) {
  move(OpKind::kSpill, Lane::kWrite, gradient, map_.segments[value.segment].nvme_gradient, value,
       update_pieces(value.segment));
}

void GradientPath::leave(int segment) {
  if (!is_trainable(segment)) return;
  const bool sums = model::sums_whole(*input_.spec, segment);
  if (summed_[segment] + (sums ? 1 : 0) == contributions(segment)) return finish(segment);
  const SegmentPlaces& places = map_.segments[segment];
  if (places.accumulator.exists()) return;
  const Value sum = gradient_value(segment, summed_[segment], 0);
  Place place = accumulators_[segment];
  if (input_.device.discrete) place = download(segment, place, sum);
  if (!places.held_gradient.exists()) spill(place, sum);
  ring_.release(segment);
  device_ring_.release(segment);
  accumulators_[segment] = Place{};
}

// The weights of a block or head are still where its backward read them; those of the embedding, of
// blocks whose products are delayed, and of a discrete device that is not their home, are brought
// to the host again.
void GradientPath::update_in_backward(int segment, const Place& gradient) {
  const bool at_hand = !input_.device.discrete &&
                       segment_of(segment).kind != model::SegmentKind::kEmbedding &&
                       !delays_products(input_.windows, segment_of(segment));
  const Place part = at_hand ? weights_.part(segment) : weights_.fetch(segment, Generation::kOld);
  Update update = this->update();
  update.gradient = gradient;
  updates_.apply(segment, part, update);
  const Place device = map_.segments[segment].device_hi;
  if (device.exists()) weights_.share_on_device(segment, part, device, update.to);
  if (!at_hand) weights_.release_part(segment);
}

void GradientPath::finish(int segment) {
  if (!is_trainable(segment)) return;
  if (model::sums_whole(*input_.spec, segment)) sum_whole(segment);
  STRATA_CHECK(summed_[segment] == contributions(segment));
  Place place = accumulators_[segment];
  if (plan_.mesh.reductions() > 0) place = reduce(segment);
  if (input_.device.discrete && !is_home(segment)) {
    place = download(segment, place, final_gradient(segment));
  }
  norm_partial(segment, place);
  if (spills_gradient(input_, placement_, segment)) {
    spill(place, final_gradient(segment));
  }
  if (!input_.update().waits) update_in_backward(segment, place);
  ring_.release(segment);
  device_ring_.release(segment);
  accumulators_[segment] = Place{};
}

void GradientPath::decide() {
  for (const Place& place : accumulators_) STRATA_CHECK(!place.exists());
  const bool staged = plan_.mesh.pipeline > 1;
  if (in_step()) {
    if (staged) emit_.number_from(first_number_of(building_.ground.step.ticks));
    download_norms();
    reduce_norms();
    if (staged) sum_norms();
  }
  emit_.open(OpKind::kDecide, Lane::kOptimizer, -1);
  if (in_step()) {
    if (staged) {
      norm_sum(Mode::kRead);
    } else {
      read_norms();
    }
  }
  decision(Mode::kRead, Generation::kOld);
  decision(Mode::kWrite, Generation::kNew);
  emit_.close();
}

void GradientPath::read_norms() {
  for (int s = 0; s < segment_count(); ++s) {
    if (!is_trainable(s)) continue;
    emit_.access(norm_access(Mode::kRead, s, Arena::kControl, plan_.mesh.norm_reductions()));
  }
}

void GradientPath::norm_sum(Mode mode) {
  emit_.access({.mode = mode,
                .arena = Arena::kControl,
                .offset = map_.norm_sum,
                .bytes = kNormBytes,
                .value = {.kind = ValueKind::kNormSum}});
}

// Each stage adds its partials to the sum of those before it, so the sum is that of one rank.
void GradientPath::sum_norms() {
  Op& op = emit_.open(OpKind::kReduce, Lane::kCommStage, -1);
  op.group = GroupName::kPipeline;
  op.number = number_of_norm_sum(building_.ground.step);
  op.bytes = kNormBytes;
  read_norms();
  norm_sum(Mode::kWrite);
  emit_.close();
}

void GradientPath::pass_norm(Op& op, const Access& from, const Access& to) {
  emit_.access(from);
  emit_.access(to);
  op.bytes += from.bytes;
}

// In one transfer, when the last is known.
void GradientPath::download_norms() {
  std::vector<int> segments;
  for (int s = 0; s < segment_count(); ++s) {
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
void GradientPath::reduce_norms() {
  int reduced = 0;
  if (plan_.mesh.gradient_shards() > 1) reduce_norms_over(GroupName::kShard, reduced++);
  if (plan_.mesh.tensor > 1) reduce_norms_over(GroupName::kTensor, reduced++);
}

void GradientPath::reduce_norms_over(GroupName group, int reduced) {
  Op& op = emit_.open(OpKind::kReduce, comm_lane_of(group), -1);
  op.group = group;
  for (int s = 0; s < segment_count(); ++s) {
    if (!is_trainable(s)) continue;
    pass_norm(op, norm_access(Mode::kRead, s, Arena::kControl, reduced),
              norm_access(Mode::kWrite, s, Arena::kControl, reduced + 1));
  }
  emit_.close();
}

}  // namespace strata::plan
