// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/base/dtype.h"

namespace strata::exec {

// This rank's part of one chunk's state in host memory. Element numbers count from the start of the
// segment's flat buffer.
//
//   hi                       [hi_count]     u16, or with the fp32 recipe f32 (then lo is null)
//   lo, exp_avg, exp_avg_sq  [state_count]  null for a frozen chunk
//
// The state is the whole chunk or a rank's part of it; it lies within the range of hi. When
// `zero_moments` is set, a source may leave the moments unwritten; they count as zero.
struct ChunkState {
  int segment = 0;
  int chunk = 0;
  bool frozen = false;
  bool fp32 = false;
  bool zero_moments = false;
  int64_t hi_first = 0;
  int64_t hi_count = 0;
  int64_t state_first = 0;
  int64_t state_count = 0;
  void* hi = nullptr;
  uint16_t* lo = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
};

// Fills in initial state: masters from `master(element)`, moments zero.
template <typename Master>
void fill_chunk(const ChunkState& chunk, const Master& master) {
  for (int64_t i = 0; i < chunk.hi_count; ++i) {
    const float value = master(chunk.hi_first + i);
    if (chunk.fp32) {
      static_cast<float*>(chunk.hi)[i] = value;
      continue;
    }
    const SplitMaster split = split_master(value);
    static_cast<uint16_t*>(chunk.hi)[i] = split.hi;
    const int64_t state = chunk.hi_first + i - chunk.state_first;
    if (chunk.lo && state >= 0 && state < chunk.state_count) chunk.lo[state] = split.lo;
  }
  if (chunk.frozen) return;
  std::memset(chunk.exp_avg, 0, static_cast<size_t>(chunk.state_count) * sizeof(float));
  std::memset(chunk.exp_avg_sq, 0, static_cast<size_t>(chunk.state_count) * sizeof(float));
}

// The source of loaded state: a model or a checkpoint. Called on one lane, chunks ascending. May
// throw Error.
class StateSource {
 public:
  virtual ~StateSource() = default;
  virtual void read(const ChunkState& chunk) = 0;
};

// The destination of saved state: a checkpoint or an export. Called on one lane, chunks ascending.
class StateSink {
 public:
  virtual ~StateSink() = default;
  virtual void write(const ChunkState& chunk) = 0;
};

}  // namespace strata::exec
