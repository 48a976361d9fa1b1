// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/comm/group.h"
#include "engine/exec/state_io.h"
#include "engine/model/spec.h"
#include "engine/plan/plan.h"

namespace strata::train {

// One rank's part in the checkpoints of a run. Ranks share nothing but the directory and the group:
// rank 0 begins and commits, and the others send it the tables of what they wrote.
//
// Threads: one. All ranks call save() together. Failure: Error; earlier checkpoints are unchanged.
class CheckpointSession {
 public:
  struct Run {
    std::string directory;
    int64_t keep = 1;       // the last so many
    std::string also = {};  // a link to another one to keep
    std::string nonce;      // of the run
    config::Json trainer;   // its options and data; only rank 0's counts
  };
  // `spec`: the whole model; `slice`: what this rank has of it. `group`: all ranks; null for one
  // rank. Everything given must outlive this.
  CheckpointSession(const model::ModelSpec& spec, const model::ModelSpec& slice,
                    const plan::Plan& plan, comm::Group* group, Run run);

  // `frozen` must outlive the result.
  std::unique_ptr<checkpoint::CheckpointReader> open(const std::string& path,
                                                     exec::StateSource& frozen) const;

  // Calls `stream` with a sink for this rank's state; `stream` returns the state's history. Commits
  // after all ranks have finished.
  void save(int64_t step, const std::function<exec::UpdateHistory(exec::StateSink&)>& stream);

  // Removes older checkpoints. On rank 0 alone; save() calls it.
  void rotate() const;

  // On rank 0, of the last that was committed.
  const std::string& last_path() const { return last_path_; }
  uint64_t state_hash() const { return state_hash_; }

 private:
  bool leads() const { return group_ == nullptr || group_->rank() == 0; }

  // Constant after construction
  const model::ModelSpec& spec_;
  const model::ModelSpec& slice_;
  const plan::Plan& plan_;
  comm::Group* const group_;
  const Run run_;

  std::string last_path_;
  uint64_t state_hash_ = 0;
};

}  // namespace strata::train
