// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/comm/group.h"
#include "engine/session/given_state.h"
#include "engine/session/live.h"

namespace strata::session {

// Passes one plane of all trained tensors to `visitor`, in pieces of at most 64 Ki elements; kHi
// means the f32 masters. `group`: the ranks that share the state, null for one. They call it
// together, and each of them sees the pieces of all, rank by rank. Failure: what the visitor throws
// and Error; other ranks then wait until this one stops the job.
void visit_plane(Live& live, const train::RunPlan& run, Plane plane,
                 const PlaneSink::Visitor& visitor, comm::Group* group);

}  // namespace strata::session
