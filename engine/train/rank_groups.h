// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/comm/exchange_group.h"
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

// Throws Error (kConfig) when ranks have different plans, because they would wait for each other or
// add unrelated data. `group`: all ranks; null for one.
void compare_plans(const plan::Plan& plan, comm::Group* group);

// The groups of this process's rank. Threads: one. Failure: Error (kPeer, kDeadline).
class ProcessGroups {
 public:
  using Make = std::function<std::unique_ptr<comm::Group>(const comm::ExchangeOptions&)>;
  // All ranks of the mesh make theirs at the same time. Channel 0 is the trainer's.
  // `connect_s`: the longest wait for a rank to come.
  ProcessGroups(const plan::Mesh& mesh, const comm::GroupOptions& options, double connect_s,
                const Make& make);
  const RankGroups& groups() const { return groups_; }

 private:
  std::vector<std::unique_ptr<comm::Group>> owned_;
  RankGroups groups_;
};

}  // namespace strata::train
