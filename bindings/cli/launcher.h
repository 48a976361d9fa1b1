// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "bindings/cli/job_environment.h"

namespace strata::cli {

// How the ranks of this machine ended, by the first of them that failed by itself.
struct RanksEnd {
  int code = 0;           // 0; its exit code, or 128 + the signal that ended it
  int rank = -1;          // of the job; -1: none here has failed but by losing others
  int signal = 0;         // that ended it
  bool is_stuck = false;  // it had stopped or did not end, and was ended

  // "rank 1 was ended by signal 9 (Killed)"; says `host` too where it is given.
  std::string text(const std::string& host = "") const;
};

// How long a child process has been stopped by signals without a break.
class Pause {
 public:
  // `passed_s`: since it was looked at last.
  double look(pid_t process, double passed_s);

 private:
  bool is_stopped_ = false;
  double stopped_s_ = 0;
};

// Starts one process for each rank that a job has on this machine and watches over them.
//
// Rank 0, where it is here, has this process's output streams. Lines of the others' standard error
// appear on this process's with the rank in front. Signals that stop a run go to all ranks here,
// and Ctrl-Z pauses them with this process.
// When a rank fails, the others hear of it by their groups, and some seconds later by SIGTERM those
// that are in no group yet. Those that have not ended a quarter of a minute later are ended. A rank
// that a signal has stopped is ended when another one has ended, or after half a minute.
// Threads: one; one object in a process. Failure: Error (kIo) when a process cannot be started.
class Launcher {
 public:
  // The end of `input`, a descriptor, ends a run like SIGTERM; -1: none is looked at.
  explicit Launcher(int input);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Returns when all processes have ended; may be called again then. `args`: the command line
  // without the program's name. `first`: the place of the first rank of this machine.
  RanksEnd run(std::vector<std::string> args, LaunchedJob job, StartedRank first);

  // How often signals, and the end of the input, have asked to end the run.
  int requests();

 private:
  struct Rank {
    pid_t process = 0;  // 0: ended
    int ended = -1;     // a descriptor that says so
    int errors = -1;    // its output streams, for ranks of the job other than 0
    std::string line;   // that has begun
    Pause pause;        // while this process runs
    bool is_stuck = false;
  };
  // Indices of ranks here
  void start(int index);
  void read_errors(int index);
  void print_line(int index);
  void reap(int index);
  void note_end(int index, int status);

  bool input_ends();
  void forward(int signal);
  void pause_if_asked();
  void end_those_stopped();
  void end_those_left();
  bool any_left() const;

  // Constant after construction
  int signals_ = -1;

  int requests_ = 0;
  int input_;  // -1: none, or over

  // Of the run under way
  std::vector<std::string> args_;
  LaunchedJob job_;
  StartedRank first_;
  std::vector<Rank> ranks_;
  RanksEnd end_;
  double failed_s_ = 0;     // when the first failed; 0: none has
  double looked_s_ = 0;     // for ranks that are stopped
  bool is_told_ = false;    // the others, that one has failed
  bool is_ending_ = false;  // those that have not ended since
};

}  // namespace strata::cli
