// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "engine/comm/exchange_group.h"

namespace strata::comm {

// A group of exchange_group.h whose ranks exchange over TCP (tcp_transport.h), or where they are on
// one machine by memory that they share (node_transport.h). They find each other by the store of
// the job, which outlives the group; `address` is of the interface that they use. Returns once all
// ranks are connected.
//
// Failure: as that of the group, and Error{kDeadline} when a rank cannot be reached. Who connects
// must know the job's secret; data are neither encrypted nor authenticated, so the network must be
// trusted (README.md).
std::unique_ptr<Group> make_tcp_group(JobStore& store, ExchangeOptions options = {},
                                      const std::string& address = "127.0.0.1");

}  // namespace strata::comm
