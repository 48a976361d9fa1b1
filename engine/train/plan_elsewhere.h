// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/config/machine.h"
#include "engine/config/options.h"
#include "engine/train/run_plan.h"

namespace strata::train {

// Makes options and facts those of a run on the machine of a profile, which need not be this one:
// budgets, threads and the kind of device come from it where the options do not give them. A node
// has `device_count` ranks; more ranks are more such nodes. Directories of --nvme that are not
// here, and all of a machine with GPUs, have room for all.
//
// Throws Error (kConfig) for a device that the machine does not have.
void plan_elsewhere(const config::Machine& machine, config::Options& options, RunFacts& facts);

}  // namespace strata::train
