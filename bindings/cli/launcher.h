// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "bindings/cli/temporary_directory.h"

namespace strata::cli {

// Starts one process for each rank of a job and watches over them.
//
// Rank 0 has this process's output streams. Lines of the others' standard error appear on this
// process's with the rank in front. Signals that stop a run go to all ranks. When a rank fails, the
// others hear of it by their groups; those that have not ended a quarter of a minute later are
// ended.
// Threads: one; one object in a process, used once. Failure: Error (kIo) when a process cannot be
// started.
class Launcher {
 public:
  // `args`: the command line without the program's name; `ranks` processes.
  Launcher(std::vector<std::string> args, int ranks);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Returns when all processes have ended: 0, or the exit code of the first that failed.
  int run();

 private:
  struct Rank {
    pid_t process = 0;  // 0: ended
    int ended = -1;     // a descriptor that says so
    int errors = -1;    // its output streams, for ranks other than 0
    std::string line;   // that has begun
  };
  void start(int rank);
  void forward(int signal);
  void read_errors(int rank);
  void print_line(int rank);
  void reap(int rank);
  void note_end(int rank, int status);
  void end_those_left();
  bool any_left() const;

  // Constant after construction
  const std::vector<std::string> args_;
  const TemporaryDirectory meeting_{"job"};
  int signals_ = -1;

  std::vector<Rank> ranks_;
  int code_ = 0;
  double failed_s_ = 0;     // when the first failed; 0: none has
  bool is_ending_ = false;  // those that have not ended since
};

}  // namespace strata::cli
