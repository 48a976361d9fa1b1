// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint_manifest.h"

// A directory of checkpoints, `step-000123` each. How one comes to be:
//
//   rank 0     CheckpointCommit         step-000123.tmp-NONCE, which nobody takes for a checkpoint
//   all ranks  CheckpointWriter         state-rank00000.bin; close() makes it last
//   (the caller waits for all ranks and brings their tables to rank 0)
//   rank 0     CheckpointCommit::commit manifest.json, then the final name
//
// Whatever fails or dies on the way, the checkpoints before it are as they were.
namespace strata::checkpoint {

// What a checkpoint of this model takes on disk, all ranks together.
int64_t checkpoint_bytes(const model::ModelSpec& spec);

struct CheckpointContents {
  const model::ModelSpec* spec = nullptr;
  Recipe recipe = Recipe::kFp32;
  plan::Mesh mesh;
  int64_t updates = 0;  // applied
  std::string run;      // its nonce
  config::Json trainer;
  std::vector<StateFile> files;  // what the writers' close() returned, in any order
};

// Threads: one. Failure: the constructor throws Error (kDoesNotFit before anything is written,
// kIo); commit throws kIo or kDoesNotFit. Destroyed without commit it removes what is there.
class CheckpointCommit {
 public:
  // `directory` holds the checkpoints and is created when it is missing; `bytes` of
  // checkpoint_bytes().
  CheckpointCommit(const std::string& directory, int64_t step, int64_t bytes);
  ~CheckpointCommit();
  CheckpointCommit(const CheckpointCommit&) = delete;
  CheckpointCommit& operator=(const CheckpointCommit&) = delete;

  // Where the writers write. Other processes need `nonce` and partial_path().
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

// Reads the manifest of one checkpoint and looks at the sizes of its files. Throws Error (kConfig
// where there is none, kCorrupt, kIo).
CheckpointManifest read_manifest(const std::string& path);

struct SkippedCheckpoint {
  std::string path;
  std::string reason;
};

struct FoundCheckpoint {
  std::string path;  // empty when there is none
  int64_t step = 0;
  std::vector<SkippedCheckpoint> skipped;  // newer ones that cannot be used
};

// How much of a checkpoint is read to call it whole.
enum class CheckpointCheck : uint8_t {
  kManifest,  // the manifest, and that its files have their sizes
  kBlocks,    // every block too, where there is an older checkpoint to take instead
};

// The newest checkpoint that is whole, of the run with the nonce `run` where it is given. Steps in
// names decide, never times. Only one that is proved to be damaged is passed over: throws Error
// where a newer one cannot be read, or is of a later format.
FoundCheckpoint find_checkpoint(const std::string& directory, CheckpointCheck check,
                                const std::optional<std::string>& run = {});

// Removes what was set aside, and the oldest checkpoints but `count`; those that cannot be read
// stay, and are not counted. Call it after a commit.
void keep_last(const std::string& directory, int64_t count);

// Renames the checkpoints of steps after `step`, whole or damaged, and those of other runs than
// `run`: a run that goes on from there leaves their course. They stay as step-000123.aside-NONCE
// until the next commit.
void set_aside(const std::string& directory, int64_t step, const std::string& run);

// What is there when a run begins at `step`.
struct HeldCheckpoints {
  int64_t kept = 0;            // whole ones of the run, up to the step
  int64_t aside_bytes = 0;     // of those that go after the next commit
  int64_t leftover_bytes = 0;  // of those that go when the run begins
};
HeldCheckpoints held_checkpoints(const std::string& directory, int64_t step,
                                 const std::string& run);

// A number that nobody else draws: of a run, or of a checkpoint.
uint64_t random_nonce();

// Removes what dead runs left unfinished, and returns its paths. Only under the run directory's
// lock.
std::vector<std::string> collect_leftovers(const std::string& directory);

}  // namespace strata::checkpoint
