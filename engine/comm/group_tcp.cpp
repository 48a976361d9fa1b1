// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/group_tcp.h"

#include "engine/comm/node_transport.h"
#include "engine/comm/tcp_meeting.h"
#include "engine/comm/tcp_transport.h"

namespace strata::comm {

std::unique_ptr<Group> make_tcp_group(JobStore& store, ExchangeOptions options,
                                      const std::string& address) {
  const int rank = find_own_rank(store, options.ranks);
  NodeMeeting node = meet_on_node(store, options, rank);
  const auto is_met = [&](int place) {
    const int other = options.ranks[static_cast<size_t>(place)];
    return !node.transport || other / options.ranks_on_node != store.rank() / options.ranks_on_node;
  };
  std::unique_ptr<Transport> transport;
  if (!node.reaches_all) {
    transport = std::make_unique<TcpTransport>(
        meet_by_tcp(store, options, {.own_place = rank, .address = address, .is_met = is_met}));
  }
  if (node.transport) {
    node.transport->set_base(std::move(transport));
    transport = std::move(node.transport);
  }
  auto group = make_exchange_group(store, options, std::move(transport));
  erase_tcp_meeting(store, options, rank);
  erase_meeting(store, options, rank);
  return group;
}

}  // namespace strata::comm
