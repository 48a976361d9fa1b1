// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/ground.h"

#include <algorithm>

#include "engine/plan/memory_map.h"

namespace strata::plan {

Ground ground_of(const PlanInput& input) {
  const int count = static_cast<int>(input.spec->segments.size());
  Ground ground;
  model::require_taken(*input.spec, input.shape, input.device);
  ground.layout = shard::make_layout(*input.spec, input.mesh.shards());
  ground.trainable = trainable_runs(ground.layout);
  ground.footprints.resize(count);
  const model::Route& route = input.spec->stage.route;
  ground.step = schedule_stage(route, input.mesh.stage(), input.windows, true);
  ground.passes = schedule_stage(route, input.mesh.stage(), input.windows, false);
  for (int s = 0; s < count; ++s) {
    // What another framework computes, or nobody.
    if (is_external(input, s) || !model::is_computed(input.spec->segments[s].kind)) continue;
    ground.footprints[s] =
        model::footprint(*input.spec, s, input.shape, input.recipe, input.device);
  }
  return ground;
}

Plan empty_plan(const PlanInput& input, const Ground& ground) {
  Plan plan;
  plan.recipe = input.recipe;
  plan.shape = input.shape;
  plan.micro_batches = input.micro_batches;
  plan.windows = input.windows;
  plan.eval_micro_batches = is_external(input, 0) ? 1 : input.micro_batches;
  plan.mode = input.mode;
  plan.device = input.device;
  plan.mesh = input.mesh;
  plan.io_depth = input.io_depth;
  plan.layout = ground.layout;
  plan.arenas.budget = {input.device_budget, input.host_budget, input.nvme_budget, kNoLimit};
  return plan;
}

std::vector<ChunkRun> trainable_runs(const shard::Layout& layout) {
  std::vector<ChunkRun> runs;
  for (int c = 0; c < static_cast<int>(layout.chunks.size()); ++c) {
    const shard::Chunk& chunk = layout.chunks[c];
    if (chunk.frozen) continue;
    if (!runs.empty() && runs.back().first + runs.back().count == c) {
      const shard::Chunk& before = layout.chunks[runs.back().first];
      if (before.segment == chunk.segment && before.numel == chunk.numel) {
        ++runs.back().count;
        continue;
      }
    }
    runs.push_back({c, 1});
  }
  return runs;
}

int count_in(const ChunkRun& run, const std::vector<char>& flags) {
  return static_cast<int>(std::count_if(flags.begin() + run.first,
                                        flags.begin() + run.first + run.count,
                                        [](char flag) { return flag != 0; }));
}

}  // namespace strata::plan
