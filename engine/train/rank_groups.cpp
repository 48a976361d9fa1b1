// SPDX-License-Identifier: Apache-2.0
#include "engine/train/rank_groups.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "engine/comm/gather_each.h"
#include "engine/plan/collectives.h"

namespace strata::train {

void RankGroups::abort(const char* why) const {
  if (trainer != nullptr) trainer->abort(why);
  exec::abort_all(lanes, why);
}

void compare_plans(const plan::Plan& plan, comm::Group* group) {
  if (group == nullptr) return;
  if (plan::agree(comm::gather_each(*group, plan::hashes_of(plan)), plan.mesh)) return;
  throw Error(
      ErrorCode::kConfig,
      fmt::format("rank {}: its plan exchanges other data than those of other ranks (start all "
                  "ranks with one build and the same options)",
                  plan.mesh.rank));
}

// All ranks make their groups in one order, so none waits for a rank that waits for it.
ProcessGroups::ProcessGroups(const plan::Mesh& mesh, const comm::GroupOptions& options,
                             double connect_s, const Make& make) {
  const auto join = [&](const std::string& name, int channel, const plan::Mesh::Members& members) {
    comm::ExchangeOptions group = {
        .name = name, .channel = channel, .connect_s = connect_s, .group = options};
    for (int i = 0; i < members.size; ++i) {
      group.ranks.push_back(members.first + i * members.stride);
    }
    return owned_.emplace_back(make(group)).get();
  };
  groups_.trainer = join("trainer", 0, {.size = mesh.world});
  for (int name = 0; name < plan::kGroupCount; ++name) {
    const auto members = mesh.members_of(static_cast<plan::GroupName>(name));
    if (members.size == 1) continue;
    groups_.lanes[static_cast<size_t>(name)] =
        join(fmt::format("lanes-{}-{}", name, members.first), name + 1, members);
  }
}

}  // namespace strata::train
