// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/config/machine.h"
#include "engine/exec/machine_probe.h"

namespace strata::exec {

// Sets the figures of the drives in `machine`: reads alone, writes alone, both at once, the latency
// of one request, and core seconds per GB. Takes about `seconds`. Throws Error as a volume there
// would.
void probe_drives(const ProbeOptions& options, double seconds, config::Machine& machine);

}  // namespace strata::exec
