// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/exec/state_io.h"
#include "engine/model/spec.h"

namespace strata::checkpoint {

// One hash of the whole training state: it depends only on the masters and moments of all trainable
// parameters, not on the recipe's planes, padding, chunks, world size or ZeRO stage.
//
// It is the sum, modulo 2^64, of XXH3-64 over blocks of 64 elements of each parameter, seeded with
// the parameter's name, the array and the block's index. So each rank hashes its own part, and the
// sums of all ranks are added. Threads: one at a time; `spec` must outlive it.
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
