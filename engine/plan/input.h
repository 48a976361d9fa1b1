// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "engine/plan/plan.h"

namespace strata::plan {

inline constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// What a plan is made from. Model offsets must have been assigned for mesh.shards() shards.
struct PlanInput {
  const model::ModelSpec* spec = nullptr;
  Recipe recipe = Recipe::kFp32;
  model::BatchShape shape;
  int micro_batches = 1;
  Windows windows;
  OptimizerMode mode = OptimizerMode::kDeferred;
  kernels::DeviceDescription device;  // that computes
  Mesh mesh;
  int io_depth = 8;
  // Frozen weights that stay in no memory are converted from their source at each use; else they
  // are spilled to NVMe once, at load.
  bool frozen_in_source = false;
  bool inference = false;  // eval and generate alone: every parameter is frozen, no step is planned
  int64_t device_budget = kNoLimit;
  int64_t host_budget = kNoLimit;
  int64_t nvme_budget = 0;
  const UpdateRule& update() const { return update_rule(mode); }
};

// Where everything lies: what the planner searches over. Any placement that fits gives a correct
// plan and the same bits; only speed differs.
struct Placement {
  std::vector<char> hi_in_host;    // by segment: its weights (own part) stay in host memory
  std::vector<char> hi_on_device;  // by segment, discrete only: a copy stays on the device
  // By segment, discrete only: weights, optimizer state and the gradient that waits for its update
  // have their only place on the device, and are updated there. The other flags of the segment and
  // of its chunks then say nothing.
  std::vector<char> home_on_device;
  std::vector<char> state_in_host;  // by chunk: lo and moments stay in host memory
  std::vector<char> grad_in_host;   // by segment, deferred only: the gradient waits in host memory
  std::vector<char> keep;           // by unit: interiors are kept instead of recomputed
  // By unit: its input, the checkpoint, waits for backward in host memory; else on NVMe. On a
  // discrete device this is of checkpoints that do not stay on the device.
  std::vector<char> checkpoint_in_host;
  // Rooms of held gradients serve exp_avg_sq where nothing else uses them.
  bool write_behind = true;
  bool two_sides = false;             // of what updates change on NVMe
  bool activations_on_device = true;  // discrete only
  // Discrete only: gradients that are not complete stay on the device, else they wait where
  // complete ones do.
  bool sums_on_device = true;
  int64_t weights_ring = 0;
  int64_t state_ring = 0;
  int64_t gradient_ring = 0;
  int64_t activation_ring = 0;       // of checkpoints on their way to and from NVMe
  int64_t device_weights_ring = 0;   // discrete only
  int64_t device_gradient_ring = 0;  // discrete only
};

}  // namespace strata::plan
