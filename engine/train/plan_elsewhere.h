// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/config/machine.h"
#include "engine/config/options.h"
#include "engine/train/run_plan.h"

namespace strata::train {

// The free space of drives that are not here.
inline constexpr int64_t kPlentyOfSpace = int64_t{1} << 50;

// Changes options and facts to those of a run on the machine of a profile: budgets, threads and the
// kind of device come from the profile unless the options give them. A node has `device_count`
// ranks; more ranks mean more such nodes. Directories of --nvme that do not exist here, and all
// directories of a machine with GPUs, count as having enough space.
//
// Throws Error (kConfig) for a device that the machine does not have.
void plan_elsewhere(const config::Machine& machine, config::Options& options, RunFacts& facts);

}  // namespace strata::train
