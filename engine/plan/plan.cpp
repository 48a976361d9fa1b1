// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/plan.h"

#include "engine/base/node_ranks.h"

namespace strata::plan {

const char* name_of(ProgramName name) {
  constexpr const char* kNames[] = {"load", "step", "drain", "eval", "generate", "checkpoint"};
  static_assert(std::size(kNames) == kProgramCount);
  return kNames[static_cast<size_t>(name)];
}

const char* name_of(PipelineOrder order) {
  constexpr const char* kNames[] = {"gpipe", "1f1b", "zero-bubble"};
  return kNames[static_cast<size_t>(order)];
}

int Mesh::together(const Members& members) const {
  std::vector<int> ranks(static_cast<size_t>(members.size));
  for (int i = 0; i < members.size; ++i) {
    ranks[static_cast<size_t>(i)] = members.first + i * members.stride;
  }
  return ranks_together(ranks, node_ranks);
}

}  // namespace strata::plan
