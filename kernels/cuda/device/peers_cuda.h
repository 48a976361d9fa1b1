// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "kernels/peers.h"

// GPUs that send each other memory by NCCL, which is loaded at run time where it is installed.
namespace strata::kernels::cuda {

// See DevicePlugin. Threads: any.
bool has_peers(std::string& text);

// See Device; `index` is the device's. Both throw Error{kDevice} where has_peers() is false.
PeersId make_peers_id(int index);
std::unique_ptr<Peers> join_peers(int index, const PeersOptions& options);

}  // namespace strata::kernels::cuda
