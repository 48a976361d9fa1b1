// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "bindings/cli/job_environment.h"

namespace strata::cli {

// Starts one process for each rank that a job has on this machine and watches over them.
//
// Rank 0, where it is here, has this process's output streams. Lines of the others' standard error
// appear on this process's with the rank in front. Signals that stop a run go to all ranks here.
// When a rank fails, the others hear of it by their groups; those that have not ended a quarter of
// a minute later are ended, and so is a rank that a signal has stopped for half a minute, which the
// others have given up by then.
// Threads: one; one object in a process, used once. Failure: Error (kIo) when a process cannot be
// started.
class Launcher {
 public:
  // `args`: the command line without the program's name. `first`: the place of the first rank of
  // this machine.
  Launcher(std::vector<std::string> args, LaunchedJob job, StartedRank first);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Returns when all processes have ended: 0, or the exit code of the first that failed.
  int run();

 private:
  struct Rank {
    pid_t process = 0;     // 0: ended
    int ended = -1;        // a descriptor that says so
    int errors = -1;       // its output streams, for ranks of the job other than 0
    std::string line;      // that has begun
    double stopped_s = 0;  // by a signal, while this process runs
  };
  // Indices of ranks here
  void start(int index);
  void read_errors(int index);
  void print_line(int index);
  void reap(int index);
  void note_end(int index, int status);

  void forward(int signal);
  void end_those_stopped();
  void end_those_left();
  bool any_left() const;

  // Constant after construction
  const std::vector<std::string> args_;
  const LaunchedJob job_;
  const StartedRank first_;
  int signals_ = -1;

  std::vector<Rank> ranks_;
  int code_ = 0;
  double failed_s_ = 0;     // when the first failed; 0: none has
  double looked_s_ = 0;     // for ranks that are stopped
  bool is_ending_ = false;  // those that have not ended since
};

}  // namespace strata::cli
