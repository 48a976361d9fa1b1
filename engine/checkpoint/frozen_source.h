// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/exec/state_io.h"
#include "engine/model/spec.h"

namespace strata::checkpoint {

// Frozen weights as they are needed again and again, from the files that they came in. What a
// chunk was at its first read it must be at every later one: files can be replaced during a run,
// and drives err.
//
// Threads: one at a time; each rank has its own. Failure: Error (kCorrupt; what the source throws).
// Memory: 8 bytes a chunk. `source` and `spec` must outlive it; `files` says in messages where the
// weights are.
class FrozenSource : public exec::StateSource {
 public:
  FrozenSource(exec::StateSource& source, const model::ModelSpec& spec, std::string files);

  void read(const exec::ChunkState& chunk) override;

 private:
  exec::StateSource& source_;
  const model::ModelSpec& spec_;
  const std::string files_;
  std::vector<uint64_t> seen_;  // by chunk: the checksum of its first read; 0 before it
};

}  // namespace strata::checkpoint
