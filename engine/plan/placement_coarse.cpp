// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/placement_coarse.h"

#include <algorithm>

#include "engine/plan/builder.h"

namespace strata::plan {

CoarsePlacement coarsen(const Ground& ground, const Placement& placement, int64_t slot_bytes,
                        int together) {
  CoarsePlacement coarse;
  coarse.ground.footprints = ground.footprints;
  coarse.ground.step = ground.step;
  coarse.ground.passes = ground.passes;
  coarse.placement = placement;
  const std::vector<shard::Chunk>& chunks = ground.layout.chunks;
  shard::Layout& layout = coarse.ground.layout;
  std::vector<char>& resident = coarse.placement.state_in_host;
  layout.shard_count = ground.layout.shard_count;
  resident.clear();
  std::vector<int>& joined = coarse.joined;
  for (size_t c = 0; c < chunks.size(); ++c) {
    const shard::Chunk& chunk = chunks[c];
    while (static_cast<int>(layout.first_chunk.size()) <= chunk.segment) {
      layout.first_chunk.push_back(static_cast<int>(layout.chunks.size()));
    }
    const bool continues = !joined.empty() && joined.back() < together &&
                           layout.chunks.back().segment == chunk.segment &&
                           layout.chunks.back().frozen == chunk.frozen &&
                           resident.back() == placement.state_in_host[c];
    if (continues) {
      layout.chunks.back().numel += chunk.numel;
      ++joined.back();
      continue;
    }
    layout.chunks.push_back({.segment = chunk.segment,
                             .offset = chunk.offset,
                             .numel = chunk.numel,
                             .frozen = chunk.frozen,
                             .runs = {}});
    resident.push_back(placement.state_in_host[c]);
    joined.push_back(1);
  }
  layout.first_chunk.resize(ground.layout.first_chunk.size(),
                            static_cast<int>(layout.chunks.size()));
  coarse.ground.trainable = trainable_runs(layout);
  if (together == 1) return coarse;
  // The ring holds as many of the larger chunks as it held of the smaller ones, but at most three:
  // more need not be in flight at once, and a ring that is longer anyway keeps its length.
  const int64_t few = std::min(placement.state_ring, 3 * slot_bytes);
  coarse.placement.state_ring = std::max(placement.state_ring, few * together);
  return coarse;
}

Plan build_program(const PlanInput& input, const CoarsePlacement& coarse, ProgramName name) {
  Plan plan = build_program(input, coarse.ground, coarse.placement, name);
  for (Op& op : plan.programs[static_cast<size_t>(name)].ops) {
    if (op.chunk >= 0) op.chunk_count = coarse.joined[static_cast<size_t>(op.chunk)];
  }
  return plan;
}

}  // namespace strata::plan
