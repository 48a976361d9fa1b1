// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "kernels/peers.h"

// Peers of emulated devices, whose memory is that of one process.
namespace strata::kernels::emulated {

class PeersHub;

// Where the devices of a group meet. It must live until all of them have joined.
std::shared_ptr<PeersHub> make_peers_hub();

PeersId id_of(const PeersHub& hub);

// Throws Error{kPeer} where the id is of another process.
std::unique_ptr<Peers> join_hub(const PeersOptions& options);

}  // namespace strata::kernels::emulated
