// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/local_mesh.h"

#include "engine/comm/group_local.h"

namespace strata::exec {

void abort_all(const Groups& groups, const char* why) {
  for (comm::Group* group : groups) {
    if (group != nullptr) group->abort(why);
  }
}

// Ranks of a copy are consecutive; a part has the same index in every copy.
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
  const int shards = mesh.shards();
  for (int copy = 0; copy < mesh.replicate; ++copy) {
    add(plan::GroupName::kShard, copy * shards, 1);
  }
  for (int part = 0; part < shards; ++part) add(plan::GroupName::kReplicate, part, shards);
}

}  // namespace strata::exec
