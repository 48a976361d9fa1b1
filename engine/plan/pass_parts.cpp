// SPDX-License-Identifier: Apache-2.0
// What tensor and context ranks exchange between the parts of a segment.
#include "engine/plan/pass_order.h"

namespace strata::plan {

int64_t PassOrder::bytes_of_keys() const {
  return input_.shape.context.ranks * model::own_key_bytes(*input_.spec, input_.shape);
}

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

void PassOrder::share(Mode mode, const Shared& place, Whose whose, const Value& value) {
  const int64_t first = whose == Whose::kOwn ? place.rank * place.own : 0;
  emit_.access({.mode = mode,
                .arena = compute_arena(),
                .offset = place.offset + first,
                .bytes = whose == Whose::kOwn ? place.own : place.ranks * place.own,
                .first = first,
                .value = value});
}

void PassOrder::branch(Mode mode, ValueKind kind, int segment, int micro_batch, int reduced) {
  const model::TensorSlice& slice = input_.spec->tensor;
  share(mode,
        {.offset = map_.branch,
         .own = model::branch_bytes(*input_.spec, input_.shape),
         .rank = slice.rank,
         .ranks = slice.ranks},
        reduced > 0 ? Whose::kOwn : Whose::kAll,
        {.kind = kind,
         .reduced = static_cast<uint8_t>(reduced),
         .segment = segment,
         .index = micro_batch});
}

void PassOrder::sum_branch(ValueKind kind, int segment, int micro_batch) {
  const int64_t bytes = input_.spec->tensor.ranks * model::branch_bytes(*input_.spec, input_.shape);
  const Op& op = open_exchange(OpKind::kReduce, GroupName::kTensor, segment, micro_batch, bytes);
  branch(Mode::kRead, kind, segment, micro_batch, 0);
  branch(Mode::kWrite, kind, segment, micro_batch, 1);
  close_exchange(op);
}

void PassOrder::gather_rows(int segment, int micro_batch) {
  for (const int from : segment_of(segment).inputs) {
    std::pair<int, int>& there = gathered_[static_cast<size_t>(from % 2)];
    if (there == std::pair(from, micro_batch)) continue;
    there = {from, micro_batch};
    const int64_t own = model::row_bytes(*input_.spec, input_.shape, input_.recipe);
    const int64_t all = input_.spec->tensor.ranks * own;
    const Op& op = open_exchange(OpKind::kGather, GroupName::kTensor, segment, micro_batch, all);
    activations_.read_rows(from, micro_batch, own);
    emit_.write(compute_arena(), map_.rows[static_cast<size_t>(from % 2)], all, 0,
                {.kind = ValueKind::kRows, .segment = from, .index = micro_batch});
    close_exchange(op);
  }
}

void PassOrder::read_rows(int segment, int micro_batch) {
  const int64_t own = model::row_bytes(*input_.spec, input_.shape, input_.recipe);
  for (const int from : segment_of(segment).inputs) {
    emit_.read(compute_arena(), map_.rows[static_cast<size_t>(from % 2)],
               input_.spec->tensor.ranks * own, 0,
               {.kind = ValueKind::kRows, .segment = from, .index = micro_batch});
  }
}

void PassOrder::row_gradients(Mode mode, Whose whose, int segment, int micro_batch, int reduced) {
  const model::TensorSlice& slice = input_.spec->tensor;
  share(mode,
        {.offset = map_.row_gradient,
         .own = model::row_gradient_bytes(*input_.spec, segment, input_.shape, input_.recipe),
         .rank = slice.rank,
         .ranks = slice.ranks},
        whose,
        {.kind = ValueKind::kRowGradient,
         .reduced = static_cast<uint8_t>(reduced),
         .segment = segment,
         .index = micro_batch});
}

// Where a norm follows the branch, its backward has made them.
void PassOrder::gather_row_gradients(int segment, int micro_batch) {
  const int64_t own = model::row_gradient_bytes(*input_.spec, segment, input_.shape, input_.recipe);
  const Op& op = open_exchange(OpKind::kGather, GroupName::kTensor, segment, micro_batch,
                               input_.spec->tensor.ranks * own);
  if (parts(segment).norms_branch) {
    row_gradients(Mode::kRead, Whose::kOwn, segment, micro_batch, 0);
  } else {
    activations_.read_row_gradients(segment, micro_batch, own);
  }
  row_gradients(Mode::kWrite, Whose::kAll, segment, micro_batch, 1);
  close_exchange(op);
}

void PassOrder::keys(Mode mode, ValueKind kind, Whose whose, int segment, int micro_batch,
                     int reduced) {
  const kernels::ContextPart& part = input_.shape.context;
  share(mode,
        {.offset = kind == ValueKind::kKeys ? map_.keys : map_.key_gradient,
         .own = model::own_key_bytes(*input_.spec, input_.shape),
         .rank = part.rank,
         .ranks = part.ranks},
        whose,
        {.kind = kind,
         .reduced = static_cast<uint8_t>(reduced),
         .segment = segment,
         .index = micro_batch});
}

void PassOrder::scores(Mode mode, Whose whose, int segment, int micro_batch, int reduced) {
  const model::TensorSlice& slice = input_.spec->tensor;
  share(mode,
        {.offset = map_.scores,
         .own = model::own_score_bytes(input_.shape),
         .rank = slice.rank,
         .ranks = slice.ranks},
        whose,
        {.kind = ValueKind::kScores,
         .reduced = static_cast<uint8_t>(reduced),
         .segment = segment,
         .index = micro_batch});
}

void PassOrder::gather_scores(int segment, int micro_batch) {
  const Op& op = open_exchange(OpKind::kGather, GroupName::kTensor, segment, micro_batch,
                               input_.spec->tensor.ranks * model::own_score_bytes(input_.shape));
  scores(Mode::kRead, Whose::kOwn, segment, micro_batch, 0);
  scores(Mode::kWrite, Whose::kAll, segment, micro_batch, 1);
  close_exchange(op);
}

void PassOrder::sum_logits(int segment, int micro_batch) {
  const Exchange& logits = exchange_of(map_, ValueKind::kLogits);
  const Op& op =
      open_exchange(OpKind::kReduce, GroupName::kTensor, segment, micro_batch, logits.bytes);
  for (const int reduced : {0, 1}) {
    emit_.access({.mode = reduced == 0 ? Mode::kRead : Mode::kWrite,
                  .arena = compute_arena(),
                  .offset = logits.device,
                  .bytes = logits.bytes,
                  .value = {.kind = ValueKind::kLogits, .reduced = static_cast<uint8_t>(reduced)}});
  }
  close_exchange(op);
}

void PassOrder::share_keys(OpKind kind, int segment, int micro_batch) {
  const model::Footprint& print = footprint(segment);
  if (slices()) gather_rows(segment, micro_batch);
  Op& own = open_pass(kind, segment, micro_batch, 0);
  own.flops = print.key_flops;
  exchange_.read_order(segment, micro_batch);
  keys(Mode::kWrite, ValueKind::kKeys, Whose::kOwn, segment, micro_batch, 0);
  scratch(kind == OpKind::kForward ? print.forward_workspace_bytes
                                   : print.recompute_workspace_bytes);
  emit_.close();
  shared_keys_ = {segment, micro_batch};
  const Op& op =
      open_exchange(OpKind::kGather, GroupName::kContext, segment, micro_batch, bytes_of_keys());
  keys(Mode::kRead, ValueKind::kKeys, Whose::kOwn, segment, micro_batch, 0);
  keys(Mode::kWrite, ValueKind::kKeys, Whose::kAll, segment, micro_batch, 1);
  close_exchange(op);
}

void PassOrder::norm_parts(Mode mode, ValueKind kind, int segment, int micro_batch) {
  const auto access = [&](ValueKind of, int64_t offset, int64_t bytes, bool summed) {
    emit_.access({.mode = mode,
                  .arena = compute_arena(),
                  .offset = offset,
                  .bytes = bytes,
                  .value = {.kind = of,
                            .reduced = static_cast<uint8_t>(summed ? 1 : 0),
                            .segment = segment,
                            .index = micro_batch}});
  };
  access(kind, map_.projected, model::projected_bytes(*input_.spec, input_.shape), false);
  access(ValueKind::kNormSums, map_.norm_sums, model::norm_sum_bytes(input_.shape),
         mode == Mode::kRead);
}

void PassOrder::share_norms(OpKind kind, int segment, int micro_batch) {
  const model::Footprint& print = footprint(segment);
  Op& own = open_pass(kind, segment, micro_batch, 0);
  own.flops = print.key_flops;
  exchange_.read_order(segment, micro_batch);
  norm_parts(Mode::kWrite, ValueKind::kProjected, segment, micro_batch);
  scratch(kind == OpKind::kForward ? print.forward_workspace_bytes
                                   : print.recompute_workspace_bytes);
  emit_.close();
  sum_norms(segment, micro_batch);
}

void PassOrder::sum_norms(int segment, int micro_batch) {
  const int64_t bytes = model::norm_sum_bytes(input_.shape);
  const Op& op = open_exchange(OpKind::kReduce, GroupName::kTensor, segment, micro_batch, bytes);
  for (const int reduced : {0, 1}) {
    emit_.access({.mode = reduced == 0 ? Mode::kRead : Mode::kWrite,
                  .arena = compute_arena(),
                  .offset = map_.norm_sums,
                  .bytes = bytes,
                  .value = {.kind = ValueKind::kNormSums,
                            .reduced = static_cast<uint8_t>(reduced),
                            .segment = segment,
                            .index = micro_batch}});
  }
  close_exchange(op);
}

void PassOrder::sum_key_gradients(int segment, int micro_batch) {
  const Op& op =
      open_exchange(OpKind::kReduce, GroupName::kContext, segment, micro_batch, bytes_of_keys());
  keys(Mode::kRead, ValueKind::kKeyGradient, Whose::kAll, segment, micro_batch, 0);
  keys(Mode::kWrite, ValueKind::kKeyGradient, Whose::kOwn, segment, micro_batch, 1);
  close_exchange(op);
}

}  // namespace strata::plan
