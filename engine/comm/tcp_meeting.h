// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/comm/exchange_group.h"
#include "engine/comm/job_store.h"
#include "engine/comm/tcp_socket.h"

namespace strata::comm {

struct TcpMeeting {
  int own_place = 0;                           // of this rank in the group
  std::string address = "127.0.0.1";           // of the interface on which this rank listens
  std::function<bool(int place)> is_met = {};  // whether to connect with that rank
  double authenticate_s = 10;                  // the longest that a handshake may take
};

// Connects this rank with others of its group, which call it too. The lower rank connects to the
// higher one, whose address it has by the store, and both prove by the handshake of the store's
// connections (job_channel.h) that they know the job's secret, for this group, these ranks and this
// meeting. Returns connections by place; those of places without a peer are closed.
//
// Who does not know the secret is refused, and delays no one: each has a buffer of less than 100
// bytes and `authenticate_s`, and the oldest goes when there are more than 64. Nothing listens any
// more when this returns. Failure: Error{kDeadline} that names each rank that is missing and its
// address, Error{kPeer} when the job stops, and what the store's calls throw.
std::vector<Socket> meet_by_tcp(JobStore& store, const ExchangeOptions& options,
                                const TcpMeeting& meeting);
// When the group has met, the key can go.
void erase_tcp_meeting(JobStore& store, const ExchangeOptions& options, int own_place);

}  // namespace strata::comm
