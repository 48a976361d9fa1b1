// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/config/json.h"
#include "engine/train/plan_compare.h"

namespace strata::train {

// What limits a run's steps, and what more of the machine would make them shorter, by the planner.
struct RunAdvice {
  std::string limit;  // see bottleneck_of(); empty: not known
  struct Change {
    std::string name;    // "one more drive (3)"
    double shorter = 0;  // the share of a step's time that it saves
  };
  std::vector<Change> changes;  // those that save at least 3 %, the best first
  bool is_whole = false;        // false: time did not suffice to look at changes
};

// Plans the run again, and with changes, in about `limit_s`: no plan is begun that would end after
// it, were it as long as the longest so far. `planning_s` is how long the run's own planning took.
RunAdvice advise(const PlanBasis& basis, double planning_s, double limit_s);

// The advice that plans of compare_hardware() give.
RunAdvice advice_of(const std::vector<Compared>& compared, bool is_whole);

// A sentence without a line end; empty when nothing is known.
std::string advice_text(const RunAdvice& advice);
config::Json advice_json(const RunAdvice& advice);

}  // namespace strata::train
