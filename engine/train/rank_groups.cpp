// SPDX-License-Identifier: Apache-2.0
#include "engine/train/rank_groups.h"

#include <fmt/format.h>

namespace strata::train {

void RankGroups::abort(const char* why) const {
  if (trainer != nullptr) trainer->abort(why);
  exec::abort_all(lanes, why);
}

// All ranks make their groups in one order, so none waits for a rank that waits for it.
ProcessGroups::ProcessGroups(const plan::Mesh& mesh, const comm::GroupOptions& options,
                             const Make& make) {
  const auto join = [&](const std::string& name, const plan::Mesh::Members& members) {
    comm::ExchangeOptions group = {.name = name, .connect_s = kPatienceS, .group = options};
    for (int i = 0; i < members.size; ++i) {
      group.ranks.push_back(members.first + i * members.stride);
    }
    return owned_.emplace_back(make(group)).get();
  };
  groups_.trainer = join("trainer", {.size = mesh.world});
  for (int name = 0; name < plan::kGroupCount; ++name) {
    const auto members = mesh.members_of(static_cast<plan::GroupName>(name));
    if (members.size == 1) continue;
    groups_.lanes[static_cast<size_t>(name)] =
        join(fmt::format("lanes-{}-{}", name, members.first), members);
  }
}

}  // namespace strata::train
