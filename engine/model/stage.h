// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/model/footprint.h"
#include "engine/model/spec.h"

// Pipeline parallelism: the units of a model are divided into sections, which the ranks of a group
// have in turn. Outputs go from section to section, and their gradients back.
namespace strata::model {

// Of a model on so many ranks, each of which has a section in each of so many laps. Throws Error
// (kConfig) where there are more of these sections than blocks.
Route route_of(const ModelSpec& whole, int ranks, int laps);

struct Division {
  Route route;
  std::vector<int> borders;  // the first unit of each section, and behind them the number of units
};

// Sections of a route. A section of more than the embedding has a block, and the last one has the
// head. Among all divisions, the one whose slowest section has the fewest operations; of several
// such, the one that fills later sections first. With several laps, the operations of ranks, and of
// sections, are then evened out.
Division divide(const ModelSpec& whole, const Route& route, const BatchShape& shape, Recipe recipe,
                const kernels::DeviceDescription& device);

// What a rank has of a model or of a tensor slice: the units of its sections, with a segment
// kReceived before and a segment kSent behind those of a section where others are. Without offsets.
ModelSpec stage_slice(const ModelSpec& whole, int rank, const Division& division);

// The units of each section of a stage: "b4 to b7", "embed and b2 to head".
std::string units_text(const ModelSpec& spec);

// A section that the model has; all of it where it is not divided.
Section section_of(const ModelSpec& spec, int number);

}  // namespace strata::model
