// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "engine/comm/group.h"

namespace strata::comm {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  // A directory that all ranks see, and a name within it: ranks of one group give the same, and no
  // group has had that name before.
  std::string store;
  std::string name = "world";
  std::string address = "127.0.0.1";  // of the interface that connections use
  double connect_s = 300;             // the longest wait for a rank to come
  GroupOptions group;
};

// A group whose ranks are processes (or threads) that exchange over TCP by Gloo. Returns once all
// ranks are connected.
//
// Memory: at most 2 MiB for each other rank, beside the sockets' own. Threads: two of its own. A
// rank keeps its group until the last call of every rank is over: one that is gone for a second
// while another waits ends it. Failure: Error{kDeadline} where a rank does not come, Error{kPeer}
// where a connection is lost or another rank stops. Data are neither encrypted nor authenticated:
// the network must be trusted.
std::unique_ptr<Group> make_gloo_group(const GlooOptions& options);

}  // namespace strata::comm
