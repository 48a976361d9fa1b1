// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/exec/state_io.h"
#include "engine/model/spec.h"

namespace strata::checkpoint {

// One hash of the whole training state: it depends only on the masters and moments of all trainable
// parameters, not on the recipe's planes, padding, chunks, world size, ZeRO stage or tensor slices.
//
// It is a sum, modulo 2^64, over all elements: of an odd key, from the parameter's name and the
// element's index in the whole parameter, times the element's bits. So each rank hashes its own
// part, and the sums of all ranks are added. Of the tensor ranks that have all of a parameter, the
// first counts it. Threads: one at a time; `spec`, this rank's, must outlive it.
class StateHash : public exec::StateSink {
 public:
  explicit StateHash(const model::ModelSpec& spec);

  void write(const exec::ChunkState& chunk) override;
  uint64_t value() const { return value_; }

 private:
  void add(const exec::ChunkState& chunk, const model::Parameter& parameter, uint64_t seed);

  // Constant after construction
  const model::ModelSpec& spec_;
  std::vector<std::vector<uint64_t>> seeds_;  // by segment and parameter

  uint64_t value_ = 0;
};

}  // namespace strata::checkpoint
