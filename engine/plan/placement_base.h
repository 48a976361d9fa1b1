// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/plan/placement.h"

// What must be resident before the planner has a choice, and the refusal where that does not fit.
namespace strata::plan {

// The placement with only those things resident that the options require or that NVMe has no room
// for; it may not fit.
Placement forced_placement(const PlanInput& input, const PlannerOptions& options,
                           const PlacementSearch& search);

// The same. Throws DoesNotFit where it does not fit.
Placement base_placement(const PlanInput& input, const PlannerOptions& options,
                         const PlacementSearch& search);

}  // namespace strata::plan
