// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/plan/input.h"
#include "engine/plan/memory_map.h"
#include "engine/plan/plan.h"

namespace strata::plan {

// The plan for one placement. Throws Error{kDoesNotFit} where a ring is too small for what must be
// live in it at once; whether the arenas fit their budgets is the caller's to compare
// (plan.arenas).
Plan build_plan(const PlanInput& input, const Placement& placement);

// The same with one program alone and nothing between programs: for predictions.
Plan build_program(const PlanInput& input, const Ground& ground, const Placement& placement,
                   ProgramName name);

}  // namespace strata::plan
