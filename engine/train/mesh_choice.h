// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/config/options.h"
#include "engine/train/plan_compare.h"

// --mesh auto: which axes the ranks lie along.
namespace strata::train {

struct MeshChoice {
  config::Options options;         // of the fastest mesh that fits, and of the first if none fits
  std::vector<Compared> compared;  // that mesh, then the others from fast to slow
};

// Plans the meshes that --ranks and the model allow roughly, and the fastest few of them whole, all
// with the samples of a step that --micro-batch x --accumulate x --ranks says: where ranks share
// data, there are more micro-batches. Tensor and context ranks lie within a node, and context ranks
// divide long sequences alone. A pure function of the basis. `planning` is called on several
// threads, by one at a time.
MeshChoice choose_mesh(const PlanBasis& basis, const Planning& planning);

// One line: the mesh, the next best and how much slower it is.
std::string mesh_line(const std::vector<Compared>& compared);

}  // namespace strata::train
