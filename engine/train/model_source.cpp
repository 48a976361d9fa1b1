// SPDX-License-Identifier: Apache-2.0
#include "engine/train/model_source.h"

#include <algorithm>
#include <cstring>

#include "engine/base/dtype.h"

namespace strata::train {
namespace {

constexpr int64_t kTileElements = int64_t{64} << 10;

}  // namespace

ModelSource::ModelSource(const model::ModelDirectory& directory, const model::ModelSpec& spec)
    : directory_(directory), spec_(spec), tile_(static_cast<size_t>(kTileElements)) {}

void ModelSource::read(const exec::ChunkState& chunk) {
  const size_t state_count = static_cast<size_t>(chunk.state_count);
  const size_t width = chunk.fp32 ? sizeof(float) : sizeof(uint16_t);
  std::memset(chunk.hi, 0, static_cast<size_t>(chunk.hi_count) * width);  // padding
  if (chunk.lo) std::memset(chunk.lo, 0, state_count * sizeof(uint16_t));
  if (!chunk.frozen) {
    std::memset(chunk.exp_avg, 0, state_count * sizeof(float));
    std::memset(chunk.exp_avg_sq, 0, state_count * sizeof(float));
  }
  for (const model::Parameter& parameter : spec_.segments[chunk.segment].parameters) {
    if (parameter.frozen == chunk.frozen) read_parameter(chunk, parameter);
  }
}

void ModelSource::read_parameter(const exec::ChunkState& chunk, const model::Parameter& parameter) {
  const int64_t first = std::max(parameter.offset, chunk.hi_first);
  const int64_t last =
      std::min(parameter.offset + parameter.numel, chunk.hi_first + chunk.hi_count);
  if (first >= last) return;
  if (chunk.fp32) {
    directory_.read_parameter(parameter, first - parameter.offset, last - first,
                              static_cast<float*>(chunk.hi) + (first - chunk.hi_first));
    return;
  }
  auto* hi = static_cast<uint16_t*>(chunk.hi);
  for (int64_t at = first; at < last; at += kTileElements) {
    const int64_t count = std::min(kTileElements, last - at);
    directory_.read_parameter(parameter, at - parameter.offset, count, tile_.data());
    for (int64_t i = 0; i < count; ++i) {
      const SplitMaster split = split_master(tile_[static_cast<size_t>(i)]);
      hi[at + i - chunk.hi_first] = split.hi;
      const int64_t state = at + i - chunk.state_first;
      if (chunk.lo && state >= 0 && state < chunk.state_count) chunk.lo[state] = split.lo;
    }
  }
}

}  // namespace strata::train
