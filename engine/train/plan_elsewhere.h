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
// ranks; more ranks mean more such nodes. The drives are all those of the profile, whether --nvme
// names them or not. They count as having enough space, unless the machine has no GPU and all
// directories of --nvme exist here.
//
// Throws Error (kConfig) for a device that the machine does not have.
void plan_elsewhere(const config::Machine& machine, config::Options& options, RunFacts& facts);

}  // namespace strata::train
