// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/weight_stream.h"

#include <algorithm>

#include "engine/base/threads.h"

namespace strata::checkpoint {

WeightStream::WeightStream(CheckpointReader& checkpoint, const model::ModelSpec& spec,
                           const std::function<bool(const model::Segment&)>& wants_lo)
    : checkpoint_(checkpoint), spec_(spec) {
  for (const model::Segment& segment : spec.segments) wants_lo_.push_back(wants_lo(segment));
  thread_ = start_thread([this] { run(); });
}

WeightStream::~WeightStream() {
  {
    const std::lock_guard lock(mu_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

const exec::ChunkState* WeightStream::next() {
  std::unique_lock lock(mu_);
  ++given_;  // returns the previous part to the thread
  changed_.notify_all();
  changed_.wait(lock, [this] { return read_ >= given_ || done_; });
  if (read_ >= given_) return &parts_[(given_ - 1) % kParts].state;
  if (failure_) std::rethrow_exception(failure_);
  return nullptr;
}

void WeightStream::run() {
  std::exception_ptr failure;
  try {
    for (size_t segment = 0; segment < spec_.segments.size(); ++segment) read_segment(segment);
  } catch (...) {
    failure = std::current_exception();
  }
  {
    const std::lock_guard lock(mu_);
    failure_ = failure;
    done_ = true;
  }
  changed_.notify_all();
}

// Waits for a free part. The caller still uses the last part that it was given.
WeightStream::Part* WeightStream::room() {
  std::unique_lock lock(mu_);
  changed_.wait(lock, [this] { return stop_ || read_ + 1 < given_ + kParts; });
  return stop_ ? nullptr : &parts_[read_ % kParts];
}

void WeightStream::read_segment(size_t segment) {
  const int64_t numel = spec_.segments[segment].trainable_numel;
  for (int64_t first = 0; first < numel; first += kPartElements) {
    Part* part = room();
    if (part == nullptr) return;
    read(*part, segment, first, std::min(kPartElements, numel - first));
    {
      const std::lock_guard lock(mu_);
      ++read_;
    }
    changed_.notify_all();
  }
}

void WeightStream::read(Part& part, size_t segment, int64_t first, int64_t count) {
  exec::ChunkState& state = part.state;
  state = {};
  state.segment = static_cast<int>(segment);
  state.recipe = checkpoint_.manifest().recipe;
  state.hi_first = state.state_first = first;
  state.hi_count = state.state_count = count;
  part.hi.resize(static_cast<size_t>(state.hi_bytes(kPartElements)));
  state.hi = part.hi.data();
  checkpoint_.read_plane(state.segment, Plane::kHi, first, count, state.hi);
  if (state.has_masters() || !wants_lo_[segment]) return;
  part.lo.resize(static_cast<size_t>(state.lo_bytes(kPartElements)));
  state.lo = part.lo.data();
  checkpoint_.read_plane(state.segment, Plane::kLo, first, count, state.lo);
}

}  // namespace strata::checkpoint
