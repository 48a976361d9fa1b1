// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/activation_path.h"

#include <algorithm>

#include "engine/base/check.h"

namespace strata::plan {

Value ActivationPath::value_of(int segment, int micro_batch) const {
  return {.kind = ValueKind::kActivation, .segment = segment, .index = micro_batch};
}

void ActivationPath::gradient(Mode mode, int segment, int micro_batch, int missing, int64_t bytes) {
  emit_.access({.mode = mode,
                .arena = compute_arena(),
                .offset = map_.activation_gradient[segment][micro_batch],
                .bytes = bytes,
                .value = {.kind = ValueKind::kActivationGradient,
                          .reduced = static_cast<uint8_t>(missing),
                          .segment = segment,
                          .index = micro_batch}});
}

void ActivationPath::read_gradient(int segment, int micro_batch) {
  read_row_gradients(segment, micro_batch, boundary_tensor_bytes(input_));
}

void ActivationPath::read_row_gradients(int segment, int micro_batch, int64_t bytes) {
  gradient(Mode::kRead, segment, micro_batch, 0, bytes);
}

void ActivationPath::add_gradient(int segment, int reader, int micro_batch) {
  const std::vector<int>& readers = building_.readers[segment];
  const auto missing = std::find(readers.begin(), readers.end(), reader) - readers.begin();
  const bool first = readers.back() == reader;
  const int64_t bytes = boundary_tensor_bytes(input_);
  if (!first) gradient(Mode::kRead, segment, micro_batch, static_cast<int>(missing) + 1, bytes);
  gradient(Mode::kWrite, segment, micro_batch, static_cast<int>(missing), bytes);
}

// Where compute reads and writes a segment's output: its place, or its slot in the ring.
int64_t ActivationPath::offset_of(int segment, int micro_batch) {
  const std::vector<int64_t>& places = map_.activation[segment];
  if (!places.empty()) return places[micro_batch];
  const int64_t slot = ring_.reuse(key_of(segment, micro_batch));
  STRATA_CHECK(slot >= 0);
  return slot;
}

void ActivationPath::read(int segment, int micro_batch) {
  read_rows(segment, micro_batch, boundary_tensor_bytes(input_));
}

void ActivationPath::read_rows(int segment, int micro_batch, int64_t bytes) {
  emit_.read(compute_arena(), offset_of(segment, micro_batch), bytes, 0,
             value_of(segment, micro_batch));
}

void ActivationPath::write(int segment, int micro_batch) {
  emit_.write(compute_arena(), offset_of(segment, micro_batch), boundary_tensor_bytes(input_), 0,
              value_of(segment, micro_batch));
}

void ActivationPath::move(OpKind kind, Lane lane, int segment, int micro_batch, const At& from,
                          const At& to) {
  Op& op = emit_.open(kind, lane, segment);
  op.micro_batch = micro_batch;
  op.bytes = boundary_tensor_bytes(input_);
  const Value value = value_of(segment, micro_batch);
  emit_.read(from.arena, from.offset, op.bytes, 0, value);
  emit_.write(to.arena, to.offset, op.bytes, 0, value);
  emit_.close();
}

// The slot in the ring of a checkpoint that waits on NVMe: still there, or fetched again.
int64_t ActivationPath::fetch(int segment, int micro_batch) {
  const int key = key_of(segment, micro_batch);
  int64_t slot = ring_.reuse(key);
  if (slot >= 0) return slot;
  slot = ring_.take(boundary_tensor_bytes(input_), key);
  move(OpKind::kFetch, Lane::kReadState, segment, micro_batch,
       {Arena::kNvme, map_.nvme_activation[segment][micro_batch]}, {Arena::kHost, slot});
  return slot;
}

void ActivationPath::bring(int segment, int micro_batch) {
  const bool spilled = !map_.nvme_activation[segment].empty();
  if (!input_.device.discrete) {
    if (spilled) fetch(segment, micro_batch);
    return;
  }
  // Forward finds it on the device.
  const bool waits = spilled || !map_.host_activation[segment].empty();
  if (!building_.in_backward || !waits) return;
  const int64_t host =
      spilled ? fetch(segment, micro_batch) : map_.host_activation[segment][micro_batch];
  move(OpKind::kUpload, Lane::kUpload, segment, micro_batch, {Arena::kHost, host},
       {Arena::kDevice, map_.activation[segment][micro_batch]});
}

void ActivationPath::take(int segment, int micro_batch) {
  if (!map_.activation[segment].empty() || is_external(input_, segment)) return;
  ring_.take(boundary_tensor_bytes(input_), key_of(segment, micro_batch));
}

// When the ring holds all micro-batches of two units, a program without backward needs no NVMe.
void ActivationPath::keep(int segment, int micro_batch) {
  const bool spilled = !map_.nvme_activation[segment].empty();
  const bool in_host = !map_.host_activation[segment].empty();
  const int64_t bytes = boundary_tensor_bytes(input_);
  At host = {Arena::kHost, -1};
  if (input_.device.discrete) {
    if (!in_step() || (!spilled && !in_host)) return;
    host.offset = spilled ? ring_.take(bytes, key_of(segment, micro_batch))
                          : map_.host_activation[segment][micro_batch];
    move(OpKind::kDownload, Lane::kDownload, segment, micro_batch,
         {Arena::kDevice, map_.activation[segment][micro_batch]}, host);
  } else if (spilled) {
    host.offset = offset_of(segment, micro_batch);
  }
  if (!spilled) return;
  const bool stays = (2 * int64_t{input_.micro_batches} + 1) * bytes <= ring_.bytes();
  if (in_step() || !stays) {
    move(OpKind::kSpill, Lane::kWrite, segment, micro_batch, host,
         {Arena::kNvme, map_.nvme_activation[segment][micro_batch]});
  }
  release(segment, micro_batch);
}

void ActivationPath::release(int segment, int micro_batch) {
  if (map_.nvme_activation[segment].empty()) return;
  ring_.release(key_of(segment, micro_batch));
}

}  // namespace strata::plan
