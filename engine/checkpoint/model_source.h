// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/exec/state_io.h"
#include "engine/model/spec.h"
#include "engine/model_files/model_directory.h"
#include "engine/model_files/read_ahead.h"

namespace strata::checkpoint {

// Initial state from a model directory: masters from its weights, moments zero, padding zero.
//
// Threads: one at a time, beside one that clears moments; each rank has its own, over one
// directory. Failure: Error (kIo, kCorrupt). Memory: that of model::read_elements, and
// model::transfer_buffer_bytes(spec) until all is loaded. `directory` and `spec` must outlive it.
class ModelSource : public exec::StateSource {
 public:
  // Ranks that read the same files at the same time are not alone: the page cache then saves each
  // but the first the drive.
  ModelSource(const model::ModelDirectory& directory, const model::ModelSpec& spec,
              bool alone = true);

  void read(const exec::ChunkState& chunk) override;

 private:
  static void clear(const exec::ChunkState& chunk, int64_t first, int64_t last);
  void read_parameter(const exec::ChunkState& chunk, const model::Parameter& parameter);
  void read_part(const exec::ChunkState& chunk, const model::Parameter& parameter, int64_t first,
                 int64_t last, bool own);

  // Constant after construction
  const model::ModelDirectory& directory_;
  const model::ModelSpec& spec_;

  model::ReadAhead ahead_;
};

}  // namespace strata::checkpoint
