// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/local_mesh.h"

#include "engine/comm/group_local.h"

namespace strata::exec {

void abort_all(const Groups& groups, const char* why) {
  for (comm::Group* group : groups) {
    if (group != nullptr) group->abort(why);
  }
}

LocalMesh::LocalMesh(const plan::Mesh& mesh, const comm::GroupOptions& options)
    : ranks_(static_cast<size_t>(mesh.world), Groups{}) {
  plan::Mesh of_rank = mesh;
  for (of_rank.rank = 0; of_rank.rank < mesh.world; ++of_rank.rank) {
    for (int name = 0; name < plan::kGroupCount; ++name) {
      const auto members = of_rank.members_of(static_cast<plan::GroupName>(name));
      if (members.size == 1 || members.first != of_rank.rank) continue;
      comm::GroupOptions of_group = options;
      of_group.near = of_rank.together(members);
      for (auto& group : comm::make_local_groups(members.size, of_group)) {
        const int rank = members.first + group->rank() * members.stride;
        ranks_[static_cast<size_t>(rank)][static_cast<size_t>(name)] = group.get();
        owned_.push_back(std::move(group));
      }
    }
  }
}

}  // namespace strata::exec
