// SPDX-License-Identifier: Apache-2.0
// What tensor and context ranks exchange between the parts of a segment.
#include "engine/plan/pass_order.h"

namespace strata::plan {

int64_t PassOrder::bytes_of_branch(ValueKind kind, int segment) const {
  return kind == ValueKind::kBranch ? branch_bytes(*input_.spec, input_.shape)
                                    : branch_gradient_bytes(*input_.spec, segment, input_.shape);
}

int64_t PassOrder::bytes_of_keys() const {
  return input_.shape.context.ranks * model::own_key_bytes(*input_.spec, input_.shape);
}

void PassOrder::branch(Mode mode, ValueKind kind, int segment, int micro_batch, int reduced) {
  emit_.access({.mode = mode,
                .arena = compute_arena(),
                .offset = map_.branch,
                .bytes = bytes_of_branch(kind, segment),
                .value = {.kind = kind,
                          .reduced = static_cast<uint8_t>(reduced),
                          .segment = segment,
                          .index = micro_batch}});
}

void PassOrder::open_exchange(OpKind kind, GroupName group, int segment, int micro_batch,
                              int64_t bytes) {
  Op& op = emit_.open(kind, comm_lane_of(group), segment);
  op.group = group;
  op.micro_batch = micro_batch;
  op.bytes = bytes;
}

void PassOrder::sum_branch(ValueKind kind, int segment, int micro_batch) {
  open_exchange(OpKind::kReduce, GroupName::kTensor, segment, micro_batch,
                bytes_of_branch(kind, segment));
  branch(Mode::kRead, kind, segment, micro_batch, 0);
  branch(Mode::kWrite, kind, segment, micro_batch, 1);
  emit_.close();
}

void PassOrder::keys(Mode mode, ValueKind kind, Keys whose, int segment, int micro_batch,
                     int reduced) {
  const kernels::ContextPart& part = input_.shape.context;
  const int64_t own = model::own_key_bytes(*input_.spec, input_.shape);
  const int64_t first = whose == Keys::kOwn ? part.rank * own : 0;
  emit_.access({.mode = mode,
                .arena = compute_arena(),
                .offset = first + (kind == ValueKind::kKeys ? map_.keys : map_.key_gradient),
                .bytes = whose == Keys::kOwn ? own : part.ranks * own,
                .first = first,
                .value = {.kind = kind,
                          .reduced = static_cast<uint8_t>(reduced),
                          .segment = segment,
                          .index = micro_batch}});
}

void PassOrder::share_keys(OpKind kind, int segment, int micro_batch) {
  const model::Footprint& print = footprint(segment);
  Op& own = open_pass(kind, segment, micro_batch, 0);
  own.flops = print.key_flops;
  exchange_.read_order(segment, micro_batch);
  keys(Mode::kWrite, ValueKind::kKeys, Keys::kOwn, segment, micro_batch, 0);
  scratch(kind == OpKind::kForward ? print.forward_workspace_bytes
                                   : print.recompute_workspace_bytes);
  emit_.close();
  shared_keys_ = {segment, micro_batch};
  open_exchange(OpKind::kGather, GroupName::kContext, segment, micro_batch, bytes_of_keys());
  keys(Mode::kRead, ValueKind::kKeys, Keys::kOwn, segment, micro_batch, 0);
  keys(Mode::kWrite, ValueKind::kKeys, Keys::kAll, segment, micro_batch, 1);
  emit_.close();
}

void PassOrder::sum_key_gradients(int segment, int micro_batch) {
  open_exchange(OpKind::kReduce, GroupName::kContext, segment, micro_batch, bytes_of_keys());
  keys(Mode::kRead, ValueKind::kKeyGradient, Keys::kAll, segment, micro_batch, 0);
  keys(Mode::kWrite, ValueKind::kKeyGradient, Keys::kOwn, segment, micro_batch, 1);
  emit_.close();
}

}  // namespace strata::plan
