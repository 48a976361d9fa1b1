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
  std::optional<DType> dtype = {};  // of all weights; default: their types in the source
  std::string chat_template = {};   // of chat_template.jinja; empty: the source's
};

// Converts the option for ModelSinkOptions::dtype.
std::optional<DType> dtype_of(config::ExportDtype dtype);

// Sentences about how exported weights differ from the trained ones, which name --export-dtype;
// often empty.
std::vector<std::string> export_notes(const model::ModelDirectory& source, Recipe recipe,
                                      config::ExportDtype dtype);

// Writes the final state as a model directory. Trained parameters come from the state; frozen
// parameters, types of weights and all other files come from the directory that the run began with.
//
// Guarantees: nothing at `path` changes before finish(). One rank writes each trainable element,
// once: in ZeRO stage 0 only rank 0 saves. Threads: any thread may call write(), so ranks of one
// process share the sink. Failure: Error (kConfig, kDoesNotFit, kIo). Memory: that of
// model::ModelWriter, and 8 MiB in finish() when parameters are frozen. `source` and `spec` must
// outlive it.
class ModelSink : public exec::StateSink {
 public:
  ModelSink(const model::ModelDirectory& source, const model::ModelSpec& spec,
            const ModelSinkOptions& options);

  // Whether write() needs `lo` for chunks of this segment in a run with 16-bit weights.
  bool wants_masters(const model::Segment& segment, DType weights) const;

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

// Writes a model directory from a checkpoint, without an executor.
void export_checkpoint(CheckpointReader& checkpoint, const model::ModelDirectory& source,
                       const model::ModelSpec& spec, const ModelSinkOptions& options);

}  // namespace strata::checkpoint
