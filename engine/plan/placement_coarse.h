// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/plan/memory_map.h"

namespace strata::plan {

// A placement over fewer and larger chunks, whose step takes about as long and whose plan is much
// smaller: large models are compared by it. The same bytes lie in the same arenas, but for a ring
// of optimizer state, which must hold larger chunks.
struct CoarsePlacement {
  Ground ground;
  Placement placement;
  std::vector<int> joined;  // by chunk: how many of the true ones it stands for
};

// Joins neighbours of one segment that are both resident or neither, up to `together` of them.
CoarsePlacement coarsen(const Ground& ground, const Placement& placement, int64_t slot_bytes,
                        int together);

// The step (or eval) of it, whose ops say how many chunks they stand for.
Plan build_program(const PlanInput& input, const CoarsePlacement& coarse, ProgramName name);

}  // namespace strata::plan
