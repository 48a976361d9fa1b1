// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "engine/config/options.h"
#include "engine/model_files/model_directory.h"
#include "engine/train/resume_check.h"
#include "engine/train/run_directory.h"

// Finds the checkpoint from which `strata train --resume` continues, and the run that it continues.
// run.json and every checkpoint have the nonce of their run, so that no run takes checkpoints of
// another run for its own.
namespace strata::session {

struct Resumed {
  std::string path;          // of a checkpoint; empty: from the model
  int64_t step = 0;          // of the checkpoint
  std::string run;           // the nonce; empty if the run began before runs had one
  bool is_new = true;        // a new run, which may begin with a checkpoint of another run
  bool is_own = false;       // the checkpoint is in the run's directory
  bool passes_over = false;  // newer checkpoints there cannot be used
  config::Json about = {};   // about_run() of the run that made it
  std::string changes = {};  // of options, that its next steps will have
  checkpoint::FrozenFingerprint frozen = {};
};

// The options of the run that `given` resumes: those in the named checkpoint, or in run.json of the
// named run or of --out. Empty without --resume, and empty when they cannot be read but are not
// needed; that mistake is reported later, with others. Throws Error when they are needed and cannot
// be read.
config::RunOptions options_of_run(const config::Options& given);

// For commands that only use a checkpoint: what the run says of its model, which options that are
// given override: its directory, its recipe and, where chats are rendered, its template and date.
// With --eval-fraction of the run's data also how the run reads it: the same part is held out.
config::RunOptions model_of_run(config::Command command, const config::Options& given);

// The options with the checkpoint that --resume means: the newest whole one where it names a run.
// Throws Error (kConfig) when that run has none.
config::Options with_checkpoint(config::Options options);

// The same for training: no name means the newest checkpoint of --out, and so does --out itself.
config::Options with_run(config::Options options);

// `directory` is the directory of --out if it exists. Reads no state, except for frozen weights in
// changed files. Throws Error when the checkpoint is not one of this model. Unless --force is
// given, also throws when the run would not continue exactly, or when --out has checkpoints that
// the run would set aside.
Resumed find_resumed(const config::Options& options,
                     const std::optional<train::RunDirectory>& directory,
                     const model::ModelDirectory& model);

// Throws Error when the run would not continue exactly; with --force, only warns.
void check_changes(const train::ResumeChanges& changes, const std::string& checkpoint,
                   const config::Options& options);

// Says which options the next steps have and earlier ones had not.
void log_changes(const Resumed& resumed);

// For saving state outside of a run: throws Error (kConfig) when a run would remove the saved
// checkpoint, or the checkpoint would replace one of a run.
void require_no_run(const std::string& directory, int64_t step);

// Adds the run's nonce to run.json, and the checkpoint of another run with which it began: until
// its own first checkpoint, the run is resumed from there.
void add_to_run(const Resumed& resumed, config::Json& run);

}  // namespace strata::session
