// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint_manifest.h"
#include "engine/checkpoint/frozen_fingerprint.h"
#include "engine/config/json.h"
#include "engine/config/options.h"
#include "engine/data/data.h"
#include "engine/model_files/model_directory.h"
#include "engine/plan/plan.h"

// Checks that a resumed run has the data and options of the run that made the checkpoint, and that
// ranks have those of rank 0.
namespace strata::train {

// A number of options that config::to_json() wrote; `otherwise` where it is not there, or null.
int64_t number_in(const config::Json& options, const char* name, int64_t otherwise);

// The differences, each as "--seed 2 (the checkpoint: 1)".
struct ResumeChanges {
  std::vector<std::string> breaking;  // they would change batches or numbers of the same steps
  std::vector<std::string> allowed;   // a user may change these: learning rate, length, budgets
};

// What a run's manifests record of its data: counts, and a hash of the tokens.
config::Json about_data(const data::Dataset& data);
// The options and data of a run that its manifests record, how sums over ranks nest, what its
// context ranks exchange, and what rank 0 computes with (exec::arithmetic_of).
config::Json about_run(const config::Options& options, const data::Dataset& data,
                       const checkpoint::FrozenFingerprint& frozen, const plan::Mesh& mesh,
                       const model::BatchShape& shape, const std::string& arithmetic);

// The fingerprint in a manifest's `about`; empty when it has none.
checkpoint::FrozenFingerprint frozen_of(const config::Json& about);

// `about` comes from a manifest; values that it lacks count as equal.
ResumeChanges changed_options(const config::Json& about, const config::Options& options);

// Whether sums over ranks nest otherwise, as on machines with other numbers of ranks, or context
// ranks exchange something else.
ResumeChanges changed_sums(const config::Json& about, const plan::Mesh& mesh,
                           const model::BatchShape& shape);

// Whether a device of the same kind would compute with something else (exec::arithmetic_of).
ResumeChanges changed_arithmetic(const config::Json& about, const config::Options& options,
                                 const std::string& here);

// Throws Error (kConfig) where a rank's options would train otherwise than rank 0's, which are
// those of `first` as config::to_json() wrote them: ranks would update one state in several ways.
void require_options_of(const std::string& first, const config::Options& options);

// The options of a run, with the values of its newest checkpoint where another one would not
// continue it: a start that was forced to have that has ended before its first checkpoint.
config::Json settled_options(config::Json options, const config::Json& of_checkpoint);

// The changes of the data, which must have been read.
ResumeChanges changed_data(const config::Json& about, const data::Dataset& data);

// Whether `path` is another model than that of the run: one with other frozen weights, which
// checkpoints do not contain and of which `here` is the fingerprint, or another directory while
// that of the run still exists.
ResumeChanges changed_model(const config::Json& about, const checkpoint::FrozenFingerprint& here,
                            const std::string& path);

// The spec of the model with the groups of the checkpoint's run, for commands that use a checkpoint
// without resuming its run. Throws Error (kConfig) when the frozen weights of `model` differ from
// those of that run; the message names `checkpoint`.
model::ModelSpec spec_of_checkpoint(const checkpoint::CheckpointManifest& manifest,
                                    const model::ModelDirectory& model,
                                    const std::string& checkpoint);

}  // namespace strata::train
