// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/job_store.h"
#include "engine/exec/local_mesh.h"

namespace strata::train {

// How long ranks wait for one that reads its data, which may take long. One that ends is noticed.
inline constexpr double kPatienceS = 24 * 3600;

// The groups of one rank. The comm lanes and the trainer need groups of their own, because they
// call them at the same time; the trainer's group has all ranks. Null with one rank.
struct RankGroups {
  exec::Groups lanes = {};
  comm::Group* trainer = nullptr;

  void abort(const char* why) const;
};

// The groups of this process's rank. Threads: one. Failure: Error (kPeer, kDeadline).
class ProcessGroups {
 public:
  // All ranks of the mesh make theirs at the same time. `address`: of this machine, for the data.
  ProcessGroups(comm::JobStore& store, const plan::Mesh& mesh, const comm::GroupOptions& options,
                const std::string& address);
  const RankGroups& groups() const { return groups_; }

 private:
  std::vector<std::unique_ptr<comm::Group>> owned_;
  RankGroups groups_;
};

}  // namespace strata::train
