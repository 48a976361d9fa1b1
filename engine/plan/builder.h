// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/plan/input.h"
#include "engine/plan/plan.h"

namespace strata::plan {

// The plan for one placement. Throws Error{kDoesNotFit} where a ring is too small for what must be
// live in it at once; whether the arenas fit their budgets is the caller's to compare
// (plan.arenas).
Plan build_plan(const PlanInput& input, const Placement& placement);

}  // namespace strata::plan
