// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/local_mesh.h"

#include "engine/comm/group_local.h"

namespace strata::exec {

void abort_all(const Groups& groups, const char* why) {
  for (comm::Group* group : groups) {
    if (group != nullptr) group->abort(why);
  }
}

// A tensor group's ranks are consecutive, and so are the groups of a copy; a part has the same
// index in every copy.
LocalMesh::LocalMesh(const plan::Mesh& mesh, const comm::GroupOptions& options)
    : ranks_(static_cast<size_t>(mesh.world), Groups{}) {
  const auto add = [&](plan::GroupName name, int first, int stride) {
    const int size = mesh.size_of(name);
    if (size == 1) return;
    auto groups = comm::make_local_groups(size, options);
    for (int i = 0; i < size; ++i) {
      const auto rank = static_cast<size_t>(first + i * stride);
      ranks_[rank][static_cast<size_t>(name)] = groups[static_cast<size_t>(i)].get();
      owned_.push_back(std::move(groups[static_cast<size_t>(i)]));
    }
  };
  const int copy_ranks = mesh.shards() * mesh.tensor;
  for (int first = 0; first < mesh.world; first += mesh.tensor) {
    add(plan::GroupName::kTensor, first, 1);
  }
  for (int slice = 0; slice < mesh.tensor; ++slice) {
    for (int copy = 0; copy < mesh.replicate; ++copy) {
      add(plan::GroupName::kShard, copy * copy_ranks + slice, mesh.tensor);
    }
  }
  for (int first = 0; first < copy_ranks; ++first) {
    add(plan::GroupName::kReplicate, first, copy_ranks);
  }
}

}  // namespace strata::exec
