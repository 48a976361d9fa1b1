// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/plan/memory_map.h"

namespace strata::plan {

// A placement with fewer and larger chunks, whose step takes about as long and whose plan is much
// smaller. Placements of large models are compared with it. The same bytes are in the same arenas,
// except that the ring of optimizer state must hold larger chunks.
struct CoarsePlacement {
  Ground ground;
  Placement placement;
  std::vector<int> joined;  // by chunk: how many real chunks it replaces
};

// Joins up to `together` neighbouring chunks of a segment when all or none of them are resident.
CoarsePlacement coarsen(const Ground& ground, const Placement& placement, int64_t slot_bytes,
                        int together);

// Builds the step (or eval) program of it; its ops say how many real chunks they replace.
Plan build_program(const PlanInput& input, const CoarsePlacement& coarse, ProgramName name);

}  // namespace strata::plan
