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

// Whether a run that goes on from a checkpoint is the run that made it.
namespace strata::train {

// What is different now, each as "--seed 2 (the checkpoint: 1)".
struct ResumeChanges {
  std::vector<std::string> breaking;  // the same steps would see other batches or other numbers
  std::vector<std::string> allowed;   // learning rate, length, budgets: what a user may change
};

// What a manifest keeps about a run, and is compared with.
config::Json about_run(const config::Options& options, const data::Dataset& data,
                       const checkpoint::FrozenFingerprint& frozen);

// The fingerprint in a manifest's `about`; empty where there is none.
checkpoint::FrozenFingerprint frozen_of(const config::Json& about);

// `about` is a manifest's; what it does not say counts as equal.
ResumeChanges changed_options(const config::Json& about, const config::Options& options);

// The changes of the data alone, which has to be read for it.
ResumeChanges changed_data(const config::Json& about, const data::Dataset& data);

// The changes of frozen weights, which no checkpoint holds: `here` are those of the model at
// `path`.
ResumeChanges changed_model(const config::Json& about, const checkpoint::FrozenFingerprint& here,
                            const std::string& path);

// For those who use a checkpoint and do not go on with its run: the model with the groups that it
// was trained with. Throws Error (kConfig) where the frozen weights of `model` are others than
// those of that run; `checkpoint` names it in the message.
model::ModelSpec spec_of_checkpoint(const checkpoint::CheckpointManifest& manifest,
                                    const model::ModelDirectory& model,
                                    const std::string& checkpoint);

}  // namespace strata::train
