// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/config/options.h"

// --mesh says along which axes ranks lie: shard=4,replicate=2,tensor=2,pipeline=2, or auto.
namespace strata::config {

// Sets the options of the axes, and --ranks to their product where it was not given. An axis that
// is not named has one rank; shards that are not named are what --ranks leaves. After it --mesh is
// "auto" or not given. Adds what is wrong to `problems`.
void apply_mesh(Options& options, std::vector<std::string>& problems);

inline bool chooses_mesh(const Options& options) {
  return !options.mesh.empty();
}

// The ranks of the axes that have more than one: "shard=4,tensor=2"; "shard=1" for one rank.
std::string mesh_text(const Options& options);

}  // namespace strata::config
