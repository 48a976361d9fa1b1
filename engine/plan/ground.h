// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/plan/input.h"
#include "engine/plan/pipeline.h"

namespace strata::plan {

// Consecutive chunks of one segment that are all trainable or all frozen.
struct ChunkRun {
  int first = 0;
  int count = 0;
};

// What follows from an input, independent of the placement.
struct Ground {
  shard::Layout layout;
  std::vector<ChunkRun> trainable;           // chunks that are updated
  std::vector<model::Footprint> footprints;  // by segment
  StageSchedule step, passes;                // of a step, and of forward passes alone
};

Ground ground_of(const PlanInput& input);

// A plan without places and programs: what its input says of it.
Plan empty_plan(const PlanInput& input, const Ground& ground);
std::vector<ChunkRun> trainable_runs(const shard::Layout& layout);

// How many chunks of a run are flagged.
int count_in(const ChunkRun& run, const std::vector<char>& flags);

}  // namespace strata::plan
