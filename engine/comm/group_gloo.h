// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/job_store.h"

namespace strata::comm {

struct GlooOptions {
  // The same for all ranks of the group; no group of the job has had that name before.
  std::string name = "world";
  std::vector<int> ranks = {};        // of the job, in the order of the group; empty for all
  std::string address = "127.0.0.1";  // of the interface that connections use
  double connect_s = 300;             // the longest wait for a rank to come
  GroupOptions group = {};
};

// A group whose ranks are processes (or threads) that exchange over TCP by Gloo. They find each
// other by the store of the job, which outlives the group. Returns once all ranks are connected.
//
// An abort stops the job, and with it all groups. Memory: at most 2 MiB for each other rank, beside
// the sockets' own. Threads: one of its own. A rank keeps its group until the last call of every
// rank is over: one that is gone for a second while another waits stops the job. Failure:
// Error{kDeadline} when a rank does not come, Error{kPeer} when a connection is lost or the job
// stops. Data are neither encrypted nor authenticated: the network must be trusted (README.md).
std::unique_ptr<Group> make_gloo_group(JobStore& store, const GlooOptions& options = {});

}  // namespace strata::comm
