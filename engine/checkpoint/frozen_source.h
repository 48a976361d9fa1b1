// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/exec/state_io.h"
#include "engine/model/spec.h"

namespace strata::checkpoint {

// Reads frozen weights repeatedly from the model's files. Checks that every read of a chunk gives
// the same bytes as the first one, because files can be replaced during a run and drives can return
// wrong bytes.
//
// Threads: one at a time; each rank has its own. Failure: Error (kCorrupt, and what the source
// throws). Memory: 8 bytes a chunk. `source` and `spec` must outlive it; messages name `files` as
// the place of the weights.
class FrozenSource : public exec::StateSource {
 public:
  FrozenSource(exec::StateSource& source, const model::ModelSpec& spec, std::string files);

  void read(const exec::ChunkState& chunk) override;
  void expect(std::span<const exec::ChunkState> next) override { source_.expect(next); }

 private:
  exec::StateSource& source_;
  const model::ModelSpec& spec_;
  const std::string files_;
  std::vector<uint64_t> seen_;  // by chunk: the checksum of its first read; 0 before it
};

}  // namespace strata::checkpoint
