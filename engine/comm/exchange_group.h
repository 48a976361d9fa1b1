// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/job_store.h"
#include "engine/comm/transport.h"

namespace strata::comm {

struct ExchangeOptions {
  // The same for all ranks of the group; no group of the job has had that name before.
  std::string name = "world";
  std::vector<int> ranks = {};  // of the job, in the order of the group; empty for all
  int channel = 0;              // of a transport that is lent
  int ranks_on_node = 1;        // that follow each other in the job and may share memory
  double connect_s = 300;       // the longest wait for a rank to come
  GroupOptions group = {};
};

// Fills in the ranks where there are none. Returns the place of this rank among them.
int find_own_rank(const JobStore& store, std::vector<int>& ranks);

// A group whose ranks are processes (or threads) that exchange bytes by a transport and sum them
// here, so that no sum depends on the transport. Returns once all ranks are there.
//
// An abort stops the job, and with it all groups. Memory: at most 2 MiB for each other rank, beside
// the transport's own. A rank keeps its group until the last call of every rank is over: one that
// is gone for a second while another waits stops the job. Failure: Error{kDeadline} when a rank
// does not come, Error{kPeer} when a transfer fails or the job stops.
std::unique_ptr<Group> make_exchange_group(JobStore& store, ExchangeOptions options,
                                           std::unique_ptr<Transport> transport);

}  // namespace strata::comm
