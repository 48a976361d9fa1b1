// SPDX-License-Identifier: Apache-2.0
// How ranks exchange what lies on their devices.
#include "engine/base/error.h"
#include "engine/train/run_plan_parts.h"

namespace strata::train {
namespace {

// Why devices cannot send each other memory; empty: they can.
std::string why_not(const config::Options& options, const RunFacts& facts) {
  if (ranks_on_device(options, facts) > 1) {
    return "ranks of a machine share a GPU (give each its own with --device cuda, or "
           "--device-exchange host)";
  }
  if (facts.has_peers) return "";
  if (facts.elsewhere) {
    if (facts.machine.peer_bytes_per_s > 0) return "";
    return facts.machine.name +
           " does not say peer_bytes_per_s (add it to the profile, or give --device-exchange host)";
  }
  if (options.device == config::Device::kEmulated) {
    return "emulated devices of several processes share no memory (make the ranks threads with "
           "strata train --ranks N, or give --device-exchange host)";
  }
  return "some machine lacks NCCL 2.18 or later, or has another version of it than others (see "
         "strata doctor there, or give --device-exchange host)";
}

}  // namespace

bool exchanges_directly(const config::Options& options, const RunFacts& facts,
                        const kernels::DeviceDescription& device) {
  using enum config::DeviceExchange;
  if (!device.discrete || options.ranks == 1 || options.device_exchange == kHost) return false;
  if (options.reduce_dtype == Payload::kMxInt8) return false;  // the host packs and adds these
  const std::string why = why_not(options, facts);
  if (options.device_exchange == kAuto) {
    return why.empty() && device.kernels == kernels::KernelSet::kCuda;
  }
  if (!why.empty()) throw Error(ErrorCode::kConfig, "device-exchange: direct: " + why);
  return true;
}

}  // namespace strata::train
