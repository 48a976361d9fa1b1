// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "engine/comm/group.h"
#include "engine/plan/plan.h"

namespace strata::exec {

// The groups of one rank, by plan::GroupName; null when this rank is the only member.
using Groups = std::array<comm::Group*, plan::kGroupCount>;

void abort_all(const Groups& groups, const char* why);

// The groups of all ranks of a mesh, which are threads of this process. It must outlive their
// users. Threads: each rank uses its own groups.
class LocalMesh {
 public:
  LocalMesh(const plan::Mesh& mesh, const comm::GroupOptions& options = {});
  const Groups& of(int rank) const { return ranks_[static_cast<size_t>(rank)]; }

 private:
  std::vector<std::unique_ptr<comm::Group>> owned_;
  std::vector<Groups> ranks_;
};

}  // namespace strata::exec
