// SPDX-License-Identifier: Apache-2.0
// What tensor and context ranks exchange between the parts of a segment.
#include "engine/base/check.h"
#include "engine/plan/pass_order.h"

namespace strata::plan {

Op& PassOrder::open_exchange(OpKind kind, GroupName group, int segment, int micro_batch,
                             int64_t bytes) {
  Op& op = emit_.open(kind, comm_lane_of(group), segment);
  op.group = group;
  op.micro_batch = micro_batch;
  op.bytes = bytes;
  return op;
}

void PassOrder::close_exchange(const Op& op) {
  bounce(op, compute_arena());
  emit_.close();
}

PassOrder::Shared PassOrder::place_of(ValueKind kind, int segment) const {
  using enum ValueKind;
  const model::ModelSpec& spec = *input_.spec;
  const model::BatchShape& shape = input_.shape;
  const DType interior = input_.device.interior;
  const auto of_slices = [&](int64_t offset, int64_t own) {
    return Shared{offset, own, spec.tensor.rank, spec.tensor.ranks};
  };
  const auto of_keys = [&](int64_t offset) {
    return Shared{offset, model::own_key_bytes(spec, shape), shape.context.rank,
                  shape.context.ranks};
  };
  switch (kind) {
    case kKeys:
      return of_keys(map_.keys);
    case kKeyGradient:
      return of_keys(map_.key_gradient);
    case kScores:
      return of_slices(map_.scores, model::own_score_bytes(shape));
    case kBranch:
    case kBranchGradient:
      return of_slices(map_.branch, model::branch_bytes(spec, shape));
    case kRows:
      return of_slices(map_.rows[static_cast<size_t>(segment % 2)],
                       model::row_bytes(spec, shape, input_.recipe));
    case kRowGradient:
      return of_slices(map_.row_gradient,
                       model::row_gradient_bytes(spec, segment, shape, input_.recipe, interior));
    case kProjected:
    case kProjectedGradient:
      return {.offset = map_.projected, .own = model::projected_bytes(spec, shape, interior)};
    case kNormSums:
      return {.offset = map_.norm_sums, .own = model::norm_sum_bytes(shape)};
    default: {
      STRATA_CHECK(kind == kLogits);
      const Exchange& logits = exchange_of(map_, kLogits);
      return {.offset = logits.device, .own = logits.bytes};
    }
  }
}

void PassOrder::share(Mode mode, ValueKind kind, Whose whose, int segment, int micro_batch,
                      int reduced) {
  const Shared place = place_of(kind, segment);
  const bool own = whose == Whose::kOwn;
  const int64_t first = own ? place.rank * place.own : 0;
  const bool logits = kind == ValueKind::kLogits;  // of all micro-batches
  emit_.access({.mode = mode,
                .arena = compute_arena(),
                .offset = place.offset + first,
                .bytes = own ? place.own : place.ranks * place.own,
                .first = first,
                .value = {.kind = kind,
                          .reduced = static_cast<uint8_t>(reduced),
                          .segment = logits ? -1 : segment,
                          .index = logits ? 0 : micro_batch}});
}

void PassOrder::exchange_shared(OpKind op_kind, GroupName group, ValueKind kind, int segment,
                                int micro_batch) {
  const bool gathers = op_kind == OpKind::kGather;
  const Shared place = place_of(kind, segment);
  const Op& op = open_exchange(op_kind, group, segment, micro_batch, place.ranks * place.own);
  share(Mode::kRead, kind, gathers ? Whose::kOwn : Whose::kAll, segment, micro_batch, 0);
  share(Mode::kWrite, kind, gathers ? Whose::kAll : Whose::kOwn, segment, micro_batch, 1);
  close_exchange(op);
}

void PassOrder::sum_slices(ValueKind kind, int segment, int micro_batch) {
  exchange_shared(OpKind::kReduce, GroupName::kTensor, kind, segment, micro_batch);
}

void PassOrder::gather_rows(int segment, int micro_batch) {
  for (const int from : segment_of(segment).inputs) {
    std::pair<int, int>& there = gathered_[static_cast<size_t>(from % 2)];
    if (there == std::pair(from, micro_batch)) continue;
    there = {from, micro_batch};
    const Shared place = place_of(ValueKind::kRows, from);
    const Op& op = open_exchange(OpKind::kGather, GroupName::kTensor, segment, micro_batch,
                                 place.ranks * place.own);
    activations_.read_rows(from, micro_batch, place.own);
    share(Mode::kWrite, ValueKind::kRows, Whose::kAll, from, micro_batch, 0);
    close_exchange(op);
  }
}

void PassOrder::read_rows(int segment, int micro_batch) {
  for (const int from : segment_of(segment).inputs) {
    share(Mode::kRead, ValueKind::kRows, Whose::kAll, from, micro_batch, 0);
  }
}

// Where a norm follows the branch, its backward has made them.
void PassOrder::gather_row_gradients(int segment, int micro_batch) {
  constexpr ValueKind kKind = ValueKind::kRowGradient;
  if (parts(segment).norms_branch) {
    return exchange_shared(OpKind::kGather, GroupName::kTensor, kKind, segment, micro_batch);
  }
  const Shared place = place_of(kKind, segment);
  const Op& op = open_exchange(OpKind::kGather, GroupName::kTensor, segment, micro_batch,
                               place.ranks * place.own);
  activations_.read_row_gradients(segment, micro_batch, place.own);
  share(Mode::kWrite, kKind, Whose::kAll, segment, micro_batch, 1);
  close_exchange(op);
}

void PassOrder::open_part_before(OpKind kind, int segment, int micro_batch) {
  if (slices()) gather_rows(segment, micro_batch);
  open_pass(kind, segment, micro_batch, 0).flops = footprint(segment).key_flops;
  exchange_.read_order(segment, micro_batch);
}

void PassOrder::close_pass(OpKind kind, int segment) {
  const model::Footprint& print = footprint(segment);
  scratch(kind == OpKind::kForward ? print.forward_workspace_bytes
                                   : print.recompute_workspace_bytes);
  emit_.close();
}

int64_t PassOrder::swapped_bytes_of(ValueKind kind) const {
  const bool heads = kind == ValueKind::kHeads || kind == ValueKind::kHeadsGradient;
  return input_.shape.context.ranks *
         (heads ? model::swapped_head_bytes(input_.spec->architecture, input_.shape,
                                            input_.device.interior)
                : model::swapped_attended_bytes(input_.spec->architecture, input_.shape,
                                                input_.device.interior));
}

void PassOrder::swapped(Mode mode, ValueKind kind, int reduced, int segment, int micro_batch) {
  emit_.access({.mode = mode,
                .arena = compute_arena(),
                .offset = reduced == 0 ? map_.sent : map_.received,
                .bytes = swapped_bytes_of(kind),
                .value = {.kind = kind,
                          .reduced = static_cast<uint8_t>(reduced),
                          .segment = segment,
                          .index = micro_batch}});
}

void PassOrder::swap(ValueKind kind, int segment, int micro_batch) {
  const Op& op = open_exchange(OpKind::kAllToAll, GroupName::kContext, segment, micro_batch,
                               swapped_bytes_of(kind));
  swapped(Mode::kRead, kind, 0, segment, micro_batch);
  swapped(Mode::kWrite, kind, 1, segment, micro_batch);
  close_exchange(op);
}

void PassOrder::swap_heads(OpKind kind, int segment, int micro_batch, bool fills) {
  using enum ValueKind;
  for (const int part : {0, 1}) {
    Op& op = open_pass(kind, segment, micro_batch, part);
    op.keeps = kind == OpKind::kForward && fills;
    if (part == 0) op.flops = footprint(segment).key_flops;
    exchange_.read_order(segment, micro_batch);
    if (part == 1) swapped(Mode::kRead, kHeads, 1, segment, micro_batch);
    swapped(Mode::kWrite, part == 0 ? kHeads : kAttended, 0, segment, micro_batch);
    if (fills) fill_interior(segment, micro_batch, part);
    close_pass(kind, segment);
    swap(part == 0 ? kHeads : kAttended, segment, micro_batch);
  }
}

void PassOrder::share_keys(OpKind kind, int segment, int micro_batch) {
  open_part_before(kind, segment, micro_batch);
  share(Mode::kWrite, ValueKind::kKeys, Whose::kOwn, segment, micro_batch, 0);
  close_pass(kind, segment);
  shared_keys_ = {segment, micro_batch};
  exchange_shared(OpKind::kGather, GroupName::kContext, ValueKind::kKeys, segment, micro_batch);
}

void PassOrder::norm_parts(Mode mode, ValueKind kind, int segment, int micro_batch) {
  share(mode, kind, Whose::kAll, segment, micro_batch, 0);
  share(mode, ValueKind::kNormSums, Whose::kAll, segment, micro_batch, mode == Mode::kRead ? 1 : 0);
}

void PassOrder::share_norms(OpKind kind, int segment, int micro_batch) {
  open_part_before(kind, segment, micro_batch);
  norm_parts(Mode::kWrite, ValueKind::kProjected, segment, micro_batch);
  close_pass(kind, segment);
  sum_slices(ValueKind::kNormSums, segment, micro_batch);
}

void PassOrder::exchange_for_backward(int segment, int micro_batch, int part) {
  const model::Parts parts = this->parts(segment);
  const int products = parts.backward_branch();
  if (slices() && part == parts.backward_first()) gather_row_gradients(segment, micro_batch);
  if (part < products) return sum_slices(ValueKind::kBranchGradient, segment, micro_batch);
  if (parts.swaps_heads && part < parts.backward_first()) {
    return swap(part == products ? ValueKind::kHeadsGradient : ValueKind::kAttendedGradient,
                segment, micro_batch);
  }
  if (part > products) return;
  if (parts.shares_keys) {
    exchange_shared(OpKind::kReduce, GroupName::kContext, ValueKind::kKeyGradient, segment,
                    micro_batch);
  }
  if (parts.sums_norms) sum_slices(ValueKind::kNormSums, segment, micro_batch);
}

void PassOrder::share_for_backward(int segment, int micro_batch, int part) {
  using enum ValueKind;
  const model::Parts parts = this->parts(segment);
  const int first = parts.backward_first(), products = parts.backward_branch();
  const auto access = [&](Mode mode, ValueKind kind, Whose whose, int reduced) {
    share(mode, kind, whose, segment, micro_batch, reduced);
  };
  if (parts.shares_keys && part == first) {
    access(Mode::kRead, kKeys, Whose::kAll, 1);
    access(Mode::kWrite, kKeyGradient, Whose::kAll, 0);
  }
  if (parts.shares_keys && part == products) {  // which it turns back in place
    access(Mode::kRead, kKeyGradient, Whose::kOwn, 1);
    access(Mode::kWrite, kKeyGradient, Whose::kOwn, 1);
  }
  if (parts.sums_norms && (part == first || part == products)) {
    norm_parts(part == first ? Mode::kWrite : Mode::kRead, kProjectedGradient, segment,
               micro_batch);
  }
  if (parts.swaps_heads && part <= first && part >= products) {
    const bool attends = part < first && part > products;
    if (part < first) {
      swapped(Mode::kRead, attends ? kAttendedGradient : kHeadsGradient, 1, segment, micro_batch);
    }
    if (part > products) {
      swapped(Mode::kWrite, attends ? kHeadsGradient : kAttendedGradient, 0, segment, micro_batch);
    }
  }
  if (part > first) access(Mode::kWrite, kRowGradient, Whose::kOwn, 0);
  if (part < products) access(Mode::kRead, kBranchGradient, Whose::kOwn, 1);
  if (parts.sums_branch && part == products) {
    access(Mode::kWrite, kBranchGradient, Whose::kAll, 0);
  }
}

}  // namespace strata::plan
