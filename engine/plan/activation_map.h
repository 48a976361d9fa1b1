// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/plan/ground.h"
#include "engine/plan/memory_map.h"
#include "engine/plan/packer.h"
#include "engine/plan/shared_slots.h"

namespace strata::plan {

// The part of lay_out() that is about outputs of segments and what they leave for their backward.
// Outputs of segments. That which a unit begins with is a checkpoint, with a place for every
// micro-batch; those inside of units share one set, unless the unit keeps its interiors. With
// checkpoints in host memory the device holds two sets that alternate between units. Checkpoints
// that wait on NVMe have no place but there, and pass through the activation ring. The end of a
// stream that others read stays where it is computed, and so does what a stage receives or sends.
void lay_out_activations(const PlanInput& input, const Ground& ground, const Placement& placement,
                         Packer& pack, SharedSlots& slots, MemoryMap& map);

// And the workspace.
void lay_out_interiors(const PlanInput& input, const Ground& ground, const Placement& placement,
                       Packer& pack, SharedSlots& slots, MemoryMap& map);

}  // namespace strata::plan
