// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <vector>

#include "engine/exec/state_io.h"
#include "engine/model/spec.h"
#include "engine/model_files/model_directory.h"
#include "engine/model_files/read_ahead.h"

namespace strata::checkpoint {

// Reads the initial state from a model directory: masters are its weights; moments and padding are
// zero.
//
// Threads: one at a time; read() starts one more that clears moments. Each rank has its own source
// over a shared directory. Failure: Error (kIo, kCorrupt). Memory: that of model::read_elements,
// and while more is expected model::transfer_buffer_bytes(spec). `directory` and `spec` must
// outlive it.
class ModelSource : public exec::StateSource {
 public:
  // `alone` is false when several ranks read the same files: then reads go through the page cache,
  // so that only the first rank needs the drive.
  ModelSource(const model::ModelDirectory& directory, const model::ModelSpec& spec,
              bool alone = true);

  void read(const exec::ChunkState& chunk) override;
  void expect(std::span<const exec::ChunkState> next) override;

 private:
  std::vector<model::ReadAhead::Part> parts_of(const exec::ChunkState& chunk) const;
  static void clear(const exec::ChunkState& chunk, int64_t first, int64_t last);
  void read_whole(const exec::ChunkState& chunk, const model::ReadAhead::Part& part);
  void read_part(const exec::ChunkState& chunk, const model::Parameter& parameter, int64_t first,
                 int64_t last, bool own);

  // Constant after construction
  const model::ModelDirectory& directory_;
  const model::ModelSpec& spec_;

  model::ReadAhead ahead_;
  std::deque<int> expected_;  // chunks; the first is being read
};

}  // namespace strata::checkpoint
