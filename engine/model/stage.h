// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/footprint.h"
#include "engine/model/spec.h"

// Pipeline parallelism: the units of a model are divided among the ranks of a group, each of which
// has some that follow each other. Outputs go from stage to stage, and their gradients back.
namespace strata::model {

// Throws Error (kConfig) when a model cannot be divided among so many stages.
void require_stages(const ModelSpec& whole, int stages);

// The first unit of each stage, and behind them the number of units. The embedding is in the first
// stage, the head in the last, and every stage has a block. Among all divisions, the one whose
// slowest stage has the fewest operations; of several such, the one that fills later stages first.
std::vector<int> stage_borders(const ModelSpec& whole, int stages, const BatchShape& shape,
                               Recipe recipe, const kernels::DeviceDescription& device);

// The units from borders[stage] up to borders[stage + 1] of a model or of a tensor slice, with a
// segment kReceived before and a segment kSent behind them where other stages are. Without offsets.
ModelSpec stage_slice(const ModelSpec& whole, int stage, const std::vector<int>& borders);

}  // namespace strata::model
