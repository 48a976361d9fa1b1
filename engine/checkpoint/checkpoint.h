// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint_manifest.h"

// A directory of checkpoints, each named like `step-000123`. A checkpoint is written in these
// steps:
//
//   rank 0     CheckpointCommit         step-000123.tmp-NONCE, a name that no reader accepts
//   all ranks  CheckpointWriter         state-rank00000.bin; close() makes it durable
//   (the caller waits for all ranks and brings their tables to rank 0)
//   rank 0     CheckpointCommit::commit manifest.json, then the final name
//
// If a step fails or a process dies, earlier checkpoints are unchanged.
namespace strata::checkpoint {

// The disk space of a checkpoint of this model, or of the model that this is a slice of, all ranks
// together.
int64_t checkpoint_bytes(const model::ModelSpec& spec, Recipe recipe);

// The largest state file of it: of the first tensor rank.
int64_t state_file_bytes(const model::ModelSpec& spec, Recipe recipe, int state_shards);

struct CheckpointContents {
  const model::ModelSpec* spec = nullptr;  // the whole model
  Recipe recipe = Recipe::kFp32;
  plan::Mesh mesh;
  exec::UpdateHistory history = {};
  std::string run;  // the nonce of the run
  config::Json trainer;
  std::vector<StateFile> files;  // what the writers' close() returned, in any order
};

// Writes one checkpoint on rank 0. Threads: one. Failure: the constructor throws Error (kDoesNotFit
// before anything is written, kIo); commit throws kIo or kDoesNotFit. The destructor removes a
// checkpoint that was not committed.
class CheckpointCommit {
 public:
  // `directory` has the checkpoints and is created when it is missing; `bytes` is the result of
  // checkpoint_bytes().
  CheckpointCommit(const std::string& directory, int64_t step, int64_t bytes);
  ~CheckpointCommit();
  CheckpointCommit(const CheckpointCommit&) = delete;
  CheckpointCommit& operator=(const CheckpointCommit&) = delete;

  // The directory for the writers. Other processes get it from `nonce` and partial_path().
  const std::string& partial() const { return partial_; }
  uint64_t nonce() const { return nonce_; }

  // Commits, reads the manifest back from disk, and returns the path of the checkpoint. A
  // checkpoint of the same step is replaced in one rename.
  std::string commit(const CheckpointContents& contents);

 private:
  // Constant after construction
  const std::string directory_;
  const int64_t step_;
  const uint64_t nonce_;
  const std::string partial_;

  bool committed_ = false;
};

std::string checkpoint_path(const std::string& directory, int64_t step);
std::string partial_path(const std::string& directory, int64_t step, uint64_t nonce);

// Reads the manifest of one checkpoint and checks the sizes of its files. Throws Error (kConfig
// when there is no manifest, kCorrupt, kIo).
CheckpointManifest read_manifest(const std::string& path);

struct SkippedCheckpoint {
  std::string path;
  std::string reason;
};

struct FoundCheckpoint {
  std::string path;  // empty: none found
  int64_t step = 0;
  std::vector<SkippedCheckpoint> skipped;  // newer ones that cannot be used
};

// How thoroughly a checkpoint is checked before it counts as whole.
enum class CheckpointCheck : uint8_t {
  kManifest,  // the manifest and the sizes of its files
  kBlocks,    // every block too, if there is an older checkpoint to use instead
};

// Finds the newest whole checkpoint, if `run` is given only of the run with that nonce. The step in
// the name decides, not the time. Skips only checkpoints that are proved to be damaged: throws
// Error when a newer one cannot be read or has a later format.
FoundCheckpoint find_checkpoint(const std::string& directory, CheckpointCheck check,
                                const std::optional<std::string>& run = {});

// Removes checkpoints that were set aside, and all but the newest `count` others and that of step
// `also`. Checkpoints that cannot be read stay and are not counted. Call it after a commit.
void keep_last(const std::string& directory, int64_t count, std::optional<int64_t> also = {});

// Sets aside the checkpoints of later steps than `step` and of other runs than `run`, because a run
// that continues from `step` does not include them. They are renamed to step-000123.aside-NONCE and
// stay until the next commit.
void set_aside(const std::string& directory, int64_t step, const std::string& run);

// The checkpoints that exist when a run begins at `step`.
struct HeldCheckpoints {
  int64_t kept = 0;            // number of whole ones of the run, up to the step
  int64_t aside_bytes = 0;     // removed after the next commit
  int64_t leftover_bytes = 0;  // removed when the run begins
};
HeldCheckpoints held_checkpoints(const std::string& directory, int64_t step,
                                 const std::string& run);

// A random number that identifies a run or a checkpoint.
uint64_t random_nonce();

// Removes unfinished checkpoints of dead runs and returns their paths. The caller must hold the run
// directory's lock.
std::vector<std::string> collect_leftovers(const std::string& directory);

}  // namespace strata::checkpoint
