// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/comm/group.h"
#include "engine/exec/state_io.h"
#include "engine/train/run_plan.h"

namespace strata::train {

// The checkpoints of one run whose ranks are threads of this process.
//
// Threads: any rank may call open(); all ranks call save() together, each with its own group.
// Failure: Error; earlier checkpoints are unchanged.
class CheckpointSession {
 public:
  // `run` (the run's nonce) and `trainer` (its options and data) are written into every manifest.
  CheckpointSession(std::string directory, const RunPlan& plan, int64_t keep, std::string run,
                    config::Json trainer);

  struct Opened {
    std::unique_ptr<exec::StateSource> state;
    int64_t step;
    std::optional<int64_t> updates;  // nullopt: the checkpoint does not say
  };
  // `frozen` must outlive the result.
  Opened open(const std::string& path, exec::StateSource& frozen) const;

  // Calls `stream` with a sink for this rank's state; `stream` returns the number of updates
  // applied to the state. Commits after all ranks have finished.
  void save(int64_t step, int rank, comm::Group* group,
            const std::function<int64_t(exec::StateSink&)>& stream);

  const std::string& last_path() const { return last_path_; }
  uint64_t state_hash() const { return state_hash_; }

 private:
  // Constant after construction
  const std::string directory_;
  const RunPlan& plan_;
  const int64_t keep_;
  const std::string run_;
  const config::Json trainer_;

  // Rank 0 writes between barriers of all ranks
  std::unique_ptr<checkpoint::CheckpointCommit> commit_;
  std::vector<checkpoint::StateFile> files_;  // each rank its own
  std::string last_path_;
  uint64_t state_hash_ = 0;
};

}  // namespace strata::train
