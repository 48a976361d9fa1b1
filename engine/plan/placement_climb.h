// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "engine/plan/placement.h"

namespace strata::plan {

struct Climb {
  Placement placement;
  double predicted_s = 0;
  int tried = 0;
};

// Moves memory from one purpose to another, in decreasing amounts, as long as `predict` says that a
// step becomes shorter. Deterministic: it makes at most `tries` predictions, however long they
// take.
Climb climb(const PlacementSearch& search, const Placement& base, const Placement& start,
            double start_s, bool may_keep, int tries,
            const std::function<double(const Placement&)>& predict);

}  // namespace strata::plan
