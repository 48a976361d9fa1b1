// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "engine/base/dtype.h"
#include "engine/base/recipe.h"
#include "engine/base/weight_planes.h"

namespace strata::exec {

// This rank's part of one chunk's state in host memory. Element numbers count from the start of the
// segment's flat buffer.
//
//   hi                       [hi_count]     of the recipe's weight type
//   lo                       [state_count]  u16, or f32 masters where weights are rounded from them
//   exp_avg, exp_avg_sq      [state_count]
//
// The last three are null for a frozen chunk, and lo where hi has the masters.
//
// The state is the whole chunk or a rank's part of it; it lies within the range of hi. When
// `zero_moments` is set, a source may leave the moments unwritten; they count as zero.
struct ChunkState {
  int segment = 0;
  int chunk = 0;
  bool frozen = false;
  Recipe recipe = Recipe::kBf16;
  bool zero_moments = false;
  int64_t hi_first = 0;
  int64_t hi_count = 0;
  int64_t state_first = 0;
  int64_t state_count = 0;
  void* hi = nullptr;
  void* lo = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;

  bool has_masters() const { return planes_of(recipe).from == WeightsFrom::kMaster; }
  int64_t hi_bytes(int64_t count) const { return count * width_of(Plane::kHi, recipe); }
  int64_t lo_bytes(int64_t count) const { return count * width_of(Plane::kLo, recipe); }
  std::byte* hi_at(int64_t element) const {
    return static_cast<std::byte*>(hi) + hi_bytes(element - hi_first);
  }
  std::byte* lo_at(int64_t element) const {
    return static_cast<std::byte*>(lo) + lo_bytes(element - state_first);
  }
  // From an element on; with `lo`, of the state.
  WeightPlanes planes_at(int64_t element, bool with_lo) const {
    return weight_planes(recipe, hi_at(element), with_lo && lo ? lo_at(element) : nullptr);
  }
  // The master of an element of the state.
  float master_at(int64_t element) const { return planes_at(element, true).master_at(0); }
};

// Fills in initial state: masters from `master(element)`, moments zero.
template <typename Master>
void fill_chunk(const ChunkState& chunk, const Master& master) {
  for (int64_t element = chunk.hi_first; element < chunk.hi_first + chunk.hi_count; ++element) {
    const int64_t state = element - chunk.state_first;
    const bool is_own = state >= 0 && state < chunk.state_count;
    chunk.planes_at(element, is_own).set(0, master(element));
  }
  if (chunk.frozen) return;
  std::memset(chunk.exp_avg, 0, static_cast<size_t>(chunk.state_count) * sizeof(float));
  std::memset(chunk.exp_avg_sq, 0, static_cast<size_t>(chunk.state_count) * sizeof(float));
}

// The source of loaded state: a model or a checkpoint. Called on one lane. May throw Error.
class StateSource {
 public:
  virtual ~StateSource() = default;
  // Says which chunks are read next, the first of them now: a source may read them ahead. Of each,
  // only what says which elements it has counts.
  virtual void expect(std::span<const ChunkState>) {}
  virtual void read(const ChunkState& chunk) = 0;
};

// The destination of saved state: a checkpoint or an export. Called on one lane, chunks ascending.
class StateSink {
 public:
  virtual ~StateSink() = default;
  virtual void write(const ChunkState& chunk) = 0;
};

}  // namespace strata::exec
