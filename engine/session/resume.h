// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "engine/config/options.h"
#include "engine/model_files/model_directory.h"
#include "engine/train/resume_check.h"
#include "engine/train/run_directory.h"

// What `strata train --resume` goes on from, and as which run. run.json and every checkpoint have
// the nonce of their run, so that no run takes another one's checkpoints for its own.
namespace strata::session {

struct Resumed {
  std::string path;         // of a checkpoint; empty: from the model
  int64_t step = 0;         // of the checkpoint
  std::string run;          // the nonce; empty where the run began before runs had one
  bool is_new = true;       // a run of its own, also where it goes on from another one's checkpoint
  bool is_own = false;      // the checkpoint lies in the run's directory
  config::Json about = {};  // about_run() of the run that made it
  checkpoint::FrozenFingerprint frozen = {};
};

// The options of the run that `given` goes on with: those of a named checkpoint, or of run.json in
// --out. Nothing without --resume, and nothing where they cannot be read but are not needed: that
// is reported later, with other mistakes. Throws Error where they are needed.
config::RunOptions options_of_run(const config::Options& given);

// `directory` is the one of --out, where it exists. Reads no state but frozen weights that changed.
// Throws Error for what is no checkpoint of this model, for a run that would not go on exactly, and
// for checkpoints in --out that the run would leave behind, the last two unless --force is given.
Resumed find_resumed(const config::Options& options,
                     const std::optional<train::RunDirectory>& directory,
                     const model::ModelDirectory& model);

// A run that would not go on exactly is refused; with --force it is warned of.
void check_changes(const train::ResumeChanges& changes, const std::string& checkpoint,
                   const config::Options& options);

// Throws Error (kConfig) where state of no run is to be saved and a run would remove it, or would
// lose a checkpoint of its own.
void require_no_run(const std::string& directory, int64_t step);

// Adds to run.json which run it is, and which checkpoint elsewhere it goes on from: until its own
// first checkpoint it is resumed from there.
void add_to_run(const Resumed& resumed, config::Json& run);

}  // namespace strata::session
