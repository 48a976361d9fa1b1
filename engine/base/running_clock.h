// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>

#include "engine/base/clock.h"

namespace strata {

// Seconds during which a loop has run. A loop that was held up for longer than `step_s` (its
// process was stopped, or the machine is busy) counts only `step_s`: it does not take its own pause
// for the silence of others. One thread.
class RunningClock {
 public:
  explicit RunningClock(double step_s) : step_s_(step_s), last_s_(strata::now_s()) {}

  void tick() {  // in each round of the loop
    const double last_s = std::exchange(last_s_, strata::now_s());
    run_s_ += std::min(last_s_ - last_s, step_s_);
  }
  double now_s() const { return run_s_; }

 private:
  const double step_s_;
  double last_s_;
  double run_s_ = 0;
};

}  // namespace strata
