// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace strata::exec {

// One chunk's state in host memory, as this rank holds it. Element numbers count from the start of
// the segment's flat buffer.
//
//   hi                           [hi_count]     u16, or the f32 master where lo is null (fp32
//   recipe) lo, exp_avg, exp_avg_sq      [state_count]  null for a frozen chunk
//
// The state is the whole chunk or a rank's part of it; it lies within the range of hi.
struct ChunkState {
  int segment = 0;
  int chunk = 0;
  bool frozen = false;
  bool fp32 = false;
  int64_t hi_first = 0;
  int64_t hi_count = 0;
  int64_t state_first = 0;
  int64_t state_count = 0;
  void* hi = nullptr;
  uint16_t* lo = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
};

// Where state comes from when it is loaded: a model, or a checkpoint. Called on one lane, chunks
// ascending. May throw Error.
class StateSource {
 public:
  virtual ~StateSource() = default;
  virtual void read(const ChunkState& chunk) = 0;
};

// Where state goes when it is saved: a checkpoint, or an export. Called on one lane, chunks
// ascending.
class StateSink {
 public:
  virtual ~StateSink() = default;
  virtual void write(const ChunkState& chunk) = 0;
};

}  // namespace strata::exec
