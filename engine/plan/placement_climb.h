// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "engine/plan/placement.h"

namespace strata::plan {

struct Climb {
  Placement placement;
  Cost cost;
  int tried = 0;
};

// Moves memory from one purpose to another, in decreasing amounts, as long as `predict` says that a
// step becomes shorter. Deterministic: it makes at most `tries` predictions, however long they
// take.
Climb climb(const PlacementSearch& search, const Placement& base, const Placement& start,
            const Cost& start_cost, bool may_keep, int tries,
            const std::function<Cost(const Placement&)>& predict);

}  // namespace strata::plan
