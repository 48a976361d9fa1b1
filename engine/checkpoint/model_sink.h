// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/config/options.h"
#include "engine/exec/state_io.h"
#include "engine/model_files/model_directory.h"
#include "engine/model_files/model_writer.h"

namespace strata::checkpoint {

struct ModelSinkOptions {
  std::string path;                 // the directory that will exist after finish()
  std::optional<DType> dtype = {};  // of all weights; by default the types that they came in
};

// For ModelSinkOptions.
std::optional<DType> dtype_of(config::ExportDtype dtype);

// What the weights of an exported model lose, or become, other than what was trained; complete
// sentences that name --export-dtype, often none.
std::vector<std::string> export_notes(const model::ModelDirectory& source, Recipe recipe,
                                      config::ExportDtype dtype);

// Final state to a model directory: trained parameters from the state, frozen ones and all other
// files from the directory that the run began with, as are the types of the weights.
//
// Guarantees: nothing at `path` changes before finish(). Every trainable element is written once,
// by one rank: in ZeRO stage 0 only rank 0 saves. Threads: write() from any thread, so ranks of one
// process share it. Failure: Error (kConfig, kDoesNotFit, kIo). Memory: that of model::ModelWriter;
// 8 MiB in finish() where parameters are frozen. `source` and `spec` must outlive it.
class ModelSink : public exec::StateSink {
 public:
  ModelSink(const model::ModelDirectory& source, const model::ModelSpec& spec,
            const ModelSinkOptions& options);

  // Whether more than the 16-bit weights of a bf16 run is written of this segment: chunks of others
  // may come without `lo`.
  bool wants_lo(const model::Segment& segment) const;

  void write(const exec::ChunkState& chunk) override;

  // Copies the frozen parameters, then commits.
  void finish();

 private:
  void write_parameter(const exec::ChunkState& chunk, const model::Parameter& parameter);
  void copy_frozen();

  // Constant after construction
  const model::ModelDirectory& source_;
  const model::ModelSpec& spec_;

  model::ModelWriter writer_;
};

// The same from a checkpoint, where no executor runs.
void export_checkpoint(CheckpointReader& checkpoint, const model::ModelDirectory& source,
                       const model::ModelSpec& spec, const ModelSinkOptions& options);

}  // namespace strata::checkpoint
