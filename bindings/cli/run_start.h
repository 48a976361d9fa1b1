// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/options.h"

namespace strata::cli {

// What differs between the starts of a run.
struct StartArguments {
  int64_t ranks = 1;           // of the job
  int64_t accumulate = 0;      // 0: as it is given
  bool resumes = false;        // an earlier start has the run's directory
  bool changes_ranks = false;  // an earlier start had another number of ranks
};

// Whether --mesh says how many ranks share one copy of the state, so that starts with other numbers
// of ranks have other numbers of copies. Otherwise the ranks of a start share one.
bool keeps_shards(const config::Options& options);

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

  // The command line of a start: as it was given, or with --resume of --out instead of what was
  // given of --resume and --force. A change of ranks needs --force, and changes `replicate` of the
  // mesh alone.
  std::vector<std::string> arguments(const StartArguments& start) const;

  // Whether an earlier start has the run's directory.
  bool has_directory() const;

  // Whether a start has come to the last step, and not only to where it was stopped.
  bool is_complete() const;

  // The step of the checkpoint from which the next start goes on; 0: from where the run began.
  int64_t step() const;

 private:
  // Constant after construction
  const std::vector<std::string> args_;
  const config::Options options_;
  const std::string record_;  // a file that a start writes when it takes the directory
  const std::string before_;  // which file that was before the first start
};

}  // namespace strata::cli
