// SPDX-License-Identifier: Apache-2.0
#include "engine/session/given_state.h"

#include <algorithm>

namespace strata::session {
namespace {

constexpr int64_t kPiece = 64 << 10;

// Calls visit(parameter, its first element, values) for each parameter's part of elements
// [first, first + values.size()) of a segment.
template <typename T, typename Visit>
void for_parameters(const model::Segment& segment, int64_t first, std::span<T> values,
                    const Visit& visit) {
  const int64_t last = first + std::ssize(values);
  for (size_t p = 0; p < segment.parameters.size(); ++p) {
    const model::Parameter& parameter = segment.parameters[p];
    const int64_t from = std::max(first, parameter.offset);
    const int64_t to = std::min(last, parameter.offset + parameter.numel);
    if (from >= to) continue;
    visit(static_cast<int>(p), from - parameter.offset,
          values.subspan(static_cast<size_t>(from - first), static_cast<size_t>(to - from)));
  }
}

float value_of(const exec::ChunkState& chunk, Plane plane, int64_t element) {
  const int64_t state = element - chunk.state_first;
  if (plane == Plane::kExpAvg) return chunk.exp_avg[state];
  if (plane == Plane::kExpAvgSq) return chunk.exp_avg_sq[state];
  return chunk.master_at(element);
}

}  // namespace

// Padding between tensors is zero.
void GivenState::fill(const Values& give, int segment, int64_t first,
                      std::span<float> values) const {
  std::ranges::fill(values, 0.0f);
  for_parameters(spec_.segments[static_cast<size_t>(segment)], first, values,
                 [&](int parameter, int64_t from, std::span<float> part) {
                   give(segment, parameter, from, part);
                 });
}

void GivenState::read(const exec::ChunkState& chunk) {
  const int64_t end = chunk.hi_first + chunk.hi_count;
  for (int64_t begin = chunk.hi_first; begin < end; begin += kPiece) {
    values_.resize(static_cast<size_t>(std::min(kPiece, end - begin)));
    fill(weights_, chunk.segment, begin, values_);
    exec::ChunkState piece = chunk;
    piece.hi_first = begin;
    piece.hi_count = std::ssize(values_);
    piece.hi = chunk.hi_at(begin);
    piece.frozen = chunk.frozen || begin > chunk.hi_first;  // moments are cleared once
    exec::fill_chunk(
        piece, [&](int64_t element) { return values_[static_cast<size_t>(element - begin)]; });
  }
  for (const auto& [give, plane] :
       {std::pair(&exp_avg_, chunk.exp_avg), std::pair(&exp_avg_sq_, chunk.exp_avg_sq)}) {
    if (chunk.frozen || !*give) continue;
    for (int64_t begin = 0; begin < chunk.state_count; begin += kPiece) {
      const auto count = static_cast<size_t>(std::min(kPiece, chunk.state_count - begin));
      fill(*give, chunk.segment, chunk.state_first + begin, {plane + begin, count});
    }
  }
}

void PlaneSink::write(const exec::ChunkState& chunk) {
  const model::Segment& segment = spec_.segments[static_cast<size_t>(chunk.segment)];
  const int64_t end = chunk.state_first + chunk.state_count;
  for (int64_t begin = chunk.state_first; begin < end; begin += kPiece) {
    values_.resize(static_cast<size_t>(std::min(kPiece, end - begin)));
    for (size_t i = 0; i < values_.size(); ++i) {
      values_[i] = value_of(chunk, plane_, begin + static_cast<int64_t>(i));
    }
    for_parameters(segment, begin, std::span<const float>(values_),
                   [&](int parameter, int64_t from, std::span<const float> part) {
                     visitor_(chunk.segment, parameter, from, part);
                   });
  }
}

}  // namespace strata::session
