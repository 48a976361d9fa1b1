// SPDX-License-Identifier: Apache-2.0
// Inputs of segments, and where those of units, the checkpoints, wait for backward: in the compute
// arena, in host memory, or on NVMe.
#include "engine/base/check.h"
#include "engine/plan/builder_internal.h"

namespace strata::plan {

Value Builder::activation_value(int segment, int micro_batch) const {
  return {.kind = ValueKind::kActivation, .segment = segment, .index = micro_batch};
}

Value Builder::activation_gradient_value(int segment, int micro_batch) const {
  return {.kind = ValueKind::kActivationGradient, .segment = segment, .index = micro_batch};
}

// Where compute reads and writes a segment's input: its place, or its slot in the ring.
int64_t Builder::activation_at(int segment, int micro_batch) {
  const std::vector<int64_t>& places = map_.activation[segment];
  if (!places.empty()) return places[micro_batch];
  const int64_t slot = activation_ring_.reuse(activation_key(segment, micro_batch));
  STRATA_CHECK(slot >= 0);
  return slot;
}

void Builder::read_activation(int segment, int micro_batch) {
  emit_.read(compute_arena(), activation_at(segment, micro_batch), boundary_tensor_bytes(input_), 0,
             activation_value(segment, micro_batch));
}

void Builder::write_activation(int segment, int micro_batch) {
  emit_.write(compute_arena(), activation_at(segment, micro_batch), boundary_tensor_bytes(input_),
              0, activation_value(segment, micro_batch));
}

void Builder::move_activation(OpKind kind, Lane lane, int segment, int micro_batch,
                              const ActivationPlace& from, const ActivationPlace& to) {
  Op& op = emit_.open(kind, lane, segment);
  op.micro_batch = micro_batch;
  op.bytes = boundary_tensor_bytes(input_);
  const Value value = activation_value(segment, micro_batch);
  emit_.read(from.arena, from.offset, op.bytes, 0, value);
  emit_.write(to.arena, to.offset, op.bytes, 0, value);
  emit_.close();
}

// The slot in the ring of a checkpoint that waits on NVMe: still there, or fetched again.
int64_t Builder::fetch_activation(int segment, int micro_batch) {
  const int key = activation_key(segment, micro_batch);
  int64_t slot = activation_ring_.reuse(key);
  if (slot >= 0) return slot;
  slot = activation_ring_.take(boundary_tensor_bytes(input_), key);
  move_activation(OpKind::kFetch, Lane::kReadState, segment, micro_batch,
                  {Arena::kNvme, map_.nvme_activation[segment][micro_batch]}, {Arena::kHost, slot});
  return slot;
}

// Before an op that reads a segment's input: brings it to where that reads it.
void Builder::bring_activation(int segment, int micro_batch) {
  const bool spilled = !map_.nvme_activation[segment].empty();
  if (!input_.device.discrete) {
    if (spilled) fetch_activation(segment, micro_batch);
    return;
  }
  // Forward finds it on the device.
  const bool waits = spilled || !map_.host_activation[segment].empty();
  if (!in_backward_ || !waits) return;
  const int64_t host =
      spilled ? fetch_activation(segment, micro_batch) : map_.host_activation[segment][micro_batch];
  move_activation(OpKind::kUpload, Lane::kUpload, segment, micro_batch, {Arena::kHost, host},
                  {Arena::kDevice, map_.activation[segment][micro_batch]});
}

// Before an op that writes a segment's input: gives it a slot, where it has no place.
void Builder::take_activation(int segment, int micro_batch) {
  if (!map_.activation[segment].empty() || is_external(input_, segment)) return;
  activation_ring_.take(boundary_tensor_bytes(input_), activation_key(segment, micro_batch));
}

// After an op that wrote a segment's input: takes it to where it waits. The ring may hold all
// micro-batches of two units; then a program without backward has no need of NVMe.
void Builder::keep_activation(int segment, int micro_batch) {
  const bool spilled = !map_.nvme_activation[segment].empty();
  const bool in_host = !map_.host_activation[segment].empty();
  const int64_t bytes = boundary_tensor_bytes(input_);
  ActivationPlace host = {Arena::kHost, -1};
  if (input_.device.discrete) {
    if (!in_step_ || (!spilled && !in_host)) return;
    host.offset = spilled ? activation_ring_.take(bytes, activation_key(segment, micro_batch))
                          : map_.host_activation[segment][micro_batch];
    move_activation(OpKind::kDownload, Lane::kDownload, segment, micro_batch,
                    {Arena::kDevice, map_.activation[segment][micro_batch]}, host);
  } else if (spilled) {
    host.offset = activation_at(segment, micro_batch);
  }
  if (!spilled) return;
  const bool stays = (2 * int64_t{input_.micro_batches} + 1) * bytes <= activation_ring_.bytes();
  if (in_step_ || !stays) {
    move_activation(OpKind::kSpill, Lane::kWrite, segment, micro_batch, host,
                    {Arena::kNvme, map_.nvme_activation[segment][micro_batch]});
  }
  release_activation(segment, micro_batch);
}

void Builder::release_activation(int segment, int micro_batch) {
  if (map_.nvme_activation[segment].empty()) return;
  activation_ring_.release(activation_key(segment, micro_batch));
}

}  // namespace strata::plan
