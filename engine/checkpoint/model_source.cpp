// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/model_source.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/threads.h"
#include "engine/model_files/transfer_buffer.h"

namespace strata::checkpoint {
namespace {

constexpr int64_t kElementsForThread = int64_t{1} << 19;

bool needs_clearing(const exec::ChunkState& chunk) {
  return !chunk.frozen && !chunk.zero_moments;
}

void clear_moments(const exec::ChunkState& chunk) {
  const size_t bytes = static_cast<size_t>(chunk.state_count) * sizeof(float);
  std::memset(chunk.exp_avg, 0, bytes);
  std::memset(chunk.exp_avg_sq, 0, bytes);
}

}  // namespace

ModelSource::ModelSource(const model::ModelDirectory& directory, const model::ModelSpec& spec,
                         bool alone)
    : directory_(directory),
      spec_(spec),
      ahead_(directory, alone ? model::transfer_buffer_bytes(spec) : 0) {}

// The parts of a chunk in the order in which they are read.
std::vector<model::ReadAhead::Part> ModelSource::parts_of(const exec::ChunkState& chunk) const {
  std::vector<model::ReadAhead::Part> parts;
  for (const model::Parameter& parameter : spec_.segments[chunk.segment].parameters) {
    const int64_t first = std::max(parameter.offset, chunk.hi_first);
    const int64_t last =
        std::min(parameter.offset + parameter.numel, chunk.hi_first + chunk.hi_count);
    if (parameter.frozen != chunk.frozen || first >= last) continue;
    parts.push_back({&parameter, first - parameter.offset, last - first});
  }
  return parts;
}

void ModelSource::expect(std::span<const exec::ChunkState> next) {
  while (!expected_.empty() && expected_.front() != next.front().chunk) {
    expected_.pop_front();
    ahead_.finish();
  }
  const size_t known = std::min(expected_.size(), next.size());
  const auto is_same = [](int chunk, const exec::ChunkState& state) {
    return chunk == state.chunk;
  };
  if (!std::equal(expected_.begin(), expected_.begin() + static_cast<int64_t>(known), next.begin(),
                  is_same)) {
    expected_.clear();
    ahead_.forget();
  }
  for (const exec::ChunkState& chunk : next.subspan(std::min(expected_.size(), next.size()))) {
    expected_.push_back(chunk.chunk);
    ahead_.expect(parts_of(chunk));
  }
}

void ModelSource::read(const exec::ChunkState& chunk) {
  // Another thread clears the moments, two thirds of the bytes of bf16 state, so that the drive
  // does not wait for this one.
  std::jthread moments;
  if (needs_clearing(chunk) && chunk.state_count >= kElementsForThread) {
    moments = start_thread([&chunk] { clear_moments(chunk); });
  } else if (needs_clearing(chunk)) {
    clear_moments(chunk);
  }
  int64_t next = chunk.hi_first;
  for (const model::ReadAhead::Part& part : parts_of(chunk)) {
    clear(chunk, next, part.parameter->offset);
    read_whole(chunk, part);
    next = std::max(next, part.parameter->offset + part.parameter->numel);
  }
  clear(chunk, next, chunk.hi_first + chunk.hi_count);
}

// Clears padding between parameters and after the last one.
void ModelSource::clear(const exec::ChunkState& chunk, int64_t first, int64_t last) {
  last = std::min(last, chunk.hi_first + chunk.hi_count);
  if (first >= last) return;
  std::memset(chunk.hi_at(first), 0, static_cast<size_t>(chunk.hi_bytes(last - first)));
  if (!chunk.lo) return;
  first = std::max(first, chunk.state_first);
  last = std::min(last, chunk.state_first + chunk.state_count);
  if (first >= last) return;
  std::memset(chunk.lo_at(first), 0, static_cast<size_t>(chunk.lo_bytes(last - first)));
}

void ModelSource::read_whole(const exec::ChunkState& chunk, const model::ReadAhead::Part& part) {
  const model::Parameter& parameter = *part.parameter;
  const int64_t first = parameter.offset + part.first;
  const int64_t last = first + part.count;
  if (chunk.has_masters()) {
    read_part(chunk, parameter, first, last, true);
    return;
  }
  // Only the rank's own part of the chunk has `lo`.
  const int64_t own = chunk.lo ? std::clamp(chunk.state_first, first, last) : last;
  const int64_t own_end =
      chunk.lo ? std::clamp(chunk.state_first + chunk.state_count, own, last) : last;
  read_part(chunk, parameter, first, own, false);
  read_part(chunk, parameter, own, own_end, true);
  read_part(chunk, parameter, own_end, last, false);
}

void ModelSource::read_part(const exec::ChunkState& chunk, const model::Parameter& parameter,
                            int64_t first, int64_t last, bool own) {
  if (first >= last) return;
  const WeightPlanes planes = chunk.planes_at(first, own);
  directory_.read_parameter(parameter, first - parameter.offset, last - first, planes, &ahead_);
  if (planes.weights != DType::kF16) return;
  const auto is_infinite = [](uint16_t half) { return (half & 0x7fffu) == 0x7c00u; };
  if (std::none_of(planes.hi, planes.hi + (last - first), is_infinite)) return;
  throw Error(ErrorCode::kNumeric,
              "cannot load model: tensor \"" + parameter.stored.tensor +
                  "\": a weight is beyond 65504, the largest of fp16 (use --recipe bf16)");
}

}  // namespace strata::checkpoint
