// SPDX-License-Identifier: Apache-2.0
#include "engine/train/plan_elsewhere.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/model_files/file.h"

namespace strata::train {
namespace {

using config::Device;
using config::DeviceKind;

void take_device(const config::Machine& machine, config::Options& options, RunFacts& facts) {
  if (options.device == Device::kAuto) options.device = config::device_of(machine.device);
  if (config::is_gpu(options.device) && machine.device != config::kind_of(options.device)) {
    throw Error(ErrorCode::kConfig,
                fmt::format("device: {}: the machine {}",
                            config::row_of(config::kind_of(options.device)).name, machine.name) +
                    " has no such device (give --machine with a profile that has one)");
  }
  if (!config::row_of(config::kind_of(options.device)).discrete && options.device_memory > 0) {
    throw Error(ErrorCode::kConfig, "device-memory: the machine " + machine.name +
                                        " has no device with memory of its own (use "
                                        "--host-memory)");
  }
  if (options.device_memory == 0 && options.device == Device::kCuda) {
    facts.device_is_share = true;
    options.device_memory =
        static_cast<int64_t>(kShareOfDevice * static_cast<double>(machine.device_bytes));
  }
}

// A machine with a GPU is not this machine, so directories of the same name here say nothing about
// its drives.
void take_drives(config::Options& options, RunFacts& facts) {
  if (facts.machine.nvme_mixed_bytes_per_s <= 0) return options.nvme.clear();
  const bool are_named = !options.nvme.empty();
  if (!are_named) options.nvme = {"the drives of " + facts.machine.name};
  const bool are_here = are_named && !config::row_of(facts.machine.device).is_gpu &&
                        std::all_of(options.nvme.begin(), options.nvme.end(), model::is_there);
  if (are_here) return set_room(options, facts);
  facts.nvme_free_bytes = facts.machine.nvme_bytes > 0 ? facts.machine.nvme_bytes : kPlentyOfSpace;
  if (facts.machine.nvme_weights.size() != options.nvme.size()) facts.machine.nvme_weights.clear();
}

}  // namespace

void plan_elsewhere(const config::Machine& machine, config::Options& options, RunFacts& facts) {
  facts.machine = machine;
  facts.compute_flops_per_s = 0;
  facts.ranks_on_node = std::min(options.ranks, std::max<int64_t>(1, machine.device_count));
  facts.processes = options.ranks > facts.ranks_on_node;  // as ranks of several machines are
  facts.elsewhere = true;
  if (machine.host_bytes > 0) {
    facts.limits = {};
    facts.limits.memory_total_bytes = facts.limits.memory_available_bytes = machine.host_bytes;
  }
  if (machine.cores > 0) facts.limits.cores = machine.cores;
  take_device(machine, options, facts);
  take_drives(options, facts);
}

}  // namespace strata::train
