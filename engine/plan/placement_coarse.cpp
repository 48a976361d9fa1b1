// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/placement_coarse.h"

#include <algorithm>

namespace strata::plan {

CoarsePlacement coarsen(const Ground& ground, const Placement& placement, int64_t slot_bytes,
                        int together) {
  CoarsePlacement coarse{{.layout = {}, .trainable = {}, .footprints = ground.footprints},
                         placement};
  const std::vector<shard::Chunk>& chunks = ground.layout.chunks;
  shard::Layout& layout = coarse.ground.layout;
  std::vector<char>& resident = coarse.placement.state_in_host;
  layout.shard_count = ground.layout.shard_count;
  resident.clear();
  int joined = 0;
  for (size_t c = 0; c < chunks.size(); ++c) {
    const shard::Chunk& chunk = chunks[c];
    while (static_cast<int>(layout.first_chunk.size()) <= chunk.segment) {
      layout.first_chunk.push_back(static_cast<int>(layout.chunks.size()));
    }
    const bool continues = joined > 0 && joined < together &&
                           layout.chunks.back().segment == chunk.segment &&
                           layout.chunks.back().frozen == chunk.frozen &&
                           resident.back() == placement.state_in_host[c];
    if (continues) {
      layout.chunks.back().numel += chunk.numel;
      ++joined;
      continue;
    }
    layout.chunks.push_back({.segment = chunk.segment,
                             .offset = chunk.offset,
                             .numel = chunk.numel,
                             .frozen = chunk.frozen,
                             .runs = {}});
    resident.push_back(placement.state_in_host[c]);
    joined = 1;
  }
  layout.first_chunk.resize(ground.layout.first_chunk.size(),
                            static_cast<int>(layout.chunks.size()));
  coarse.ground.trainable = trainable_runs(layout);
  if (together == 1) return coarse;
  // As many of the larger chunks as there was room for of the smaller ones, up to three: more need
  // not be in flight at once, and a long ring is long for what it holds in all.
  const int64_t few = std::min(placement.state_ring, 3 * slot_bytes);
  coarse.placement.state_ring = std::max(placement.state_ring, few * together);
  return coarse;
}

}  // namespace strata::plan
