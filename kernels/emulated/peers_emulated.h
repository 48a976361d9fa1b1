// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "kernels/peers.h"

// Peers of emulated devices, whose memory is that of one process.
namespace strata::kernels::emulated {

// Of a new place where the devices of a group meet. It lives until all of them have joined; where
// they never do, until the process ends.
PeersId make_hub_id();

// Throws Error{kPeer} where the id is of another process.
std::unique_ptr<Peers> join_hub(const PeersOptions& options);

}  // namespace strata::kernels::emulated
