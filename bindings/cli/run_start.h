// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/options.h"

namespace strata::cli {

// The command line of one start of a run. `ranks` are those of the job; `accumulate` 0 leaves it as
// it is; `changes_ranks`: the newest checkpoint is of another number of ranks.
struct StartArguments {
  int64_t ranks = 1;
  int64_t accumulate = 0;
  bool changes_ranks = false;
};

// A run of `strata train` that is started more than once: where it has come, and how it goes on.
//
// A start has the run's directory once it has written its record there; what was there before
// belongs to an earlier run, which a new start must not go on with. Threads: one. Failure: Error
// where the run's directory cannot be read.
class RunStart {
 public:
  // Before the first start. `args`: "train" and its options without --ranks; `options`: what they
  // mean.
  RunStart(std::vector<std::string> args, const config::Options& options);

  // The command line of the next start: as it was given, or with --resume when an earlier start has
  // the directory.
  std::vector<std::string> arguments(const StartArguments& start) const;

  // The step of the checkpoint from which the next start goes on; 0: from where the run began.
  int64_t step() const;

 private:
  bool has_directory() const;

  // Constant after construction
  const std::vector<std::string> args_;
  const std::string out_;
  const std::string record_;  // a file that a start writes when it takes the directory
  const std::string before_;  // which file that was before the first start
};

}  // namespace strata::cli
