// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>

#include "engine/base/running_clock.h"
#include "engine/exec/executor_impl.h"

namespace strata::exec {

// Notices an op that a GPU does not finish. A lane cannot: its thread may be inside a call of the
// driver, which waits for room behind that op.
//
// Threads: look() belongs to the thread that waits for a program. Time in which nobody waits does
// not count.
class Executor::Impl::DeviceWatch {
 public:
  explicit DeviceWatch(Impl& impl);

  // Called about once a second. Fails the run, and reports a hang, when the next op of a queue has
  // all that it waits for and is not done within ExecutorOptions::io_deadline_s.
  void look();

  // Fails the run, and reports that the device hangs in `what`. Threads: any.
  static void give_up(Impl& impl, const std::string& what);

 private:
  struct Watched {
    int64_t done = -1;  // ops of the lane, when its next one could begin
    double since_s = 0;
  };

  int64_t done_of(plan::Lane lane) const;
  bool is_at_work(plan::Lane lane, const Instance& instance, const plan::Op& op) const;
  void look_at(plan::Lane lane);

  Impl& impl_;
  RunningClock clock_;
  std::array<Watched, plan::kLaneCount> watched_;
};

}  // namespace strata::exec
