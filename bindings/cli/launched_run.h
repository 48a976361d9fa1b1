// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "bindings/cli/job_restarts.h"
#include "bindings/cli/launchers_meeting.h"
#include "bindings/cli/run_start.h"
#include "engine/config/options.h"

namespace strata::cli {

// A run under `strata launch`: starts the ranks of this machine, with --max-restarts again after a
// failure. On several machines machine 0 decides for all, after a meeting before each start.
// Threads: one; one object in a process. Failure: Error.
class LaunchedRun {
 public:
  // `launch`: the options of strata launch. `command`: "train" and its options; `train`: what they
  // mean. `ends_with_input`: the run ends in good order when standard input does.
  LaunchedRun(const config::Options& launch, std::vector<std::string> command,
              const config::Options& train, bool ends_with_input);

  // Returns when all is over: 0, or the exit code of the first rank that failed.
  int run();

 private:
  RanksEnd start(const MachineAnswer& answer);
  int code_of_end() const;
  MachineAnswer answer_alone(const MachineReport& own);
  std::vector<MachineAnswer> answer_all(const MachineReports& reports);
  MachineAnswer decide(const MachineReports& reports, MachineCount count);
  MachineAnswer next_start(const MachineReport& own);
  MachineAnswer next(const StartFailure& failure, const MachineCount& count);

  // Constant after construction
  const config::Options launch_;
  const MachineNeeds needs_;
  const bool meets_;            // with the launching processes of other machines
  const bool ends_with_input_;  // by a file of hosts

  Launcher launcher_;
  RunStart run_;
  RestartRule rule_;
  bool was_started_ = false;
  int requests_seen_ = 0;        // to end, before the meeting that is under way
  std::set<int64_t> ranks_had_;  // by earlier starts
};

}  // namespace strata::cli
