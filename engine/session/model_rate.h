// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/config/options.h"
#include "engine/model/spec.h"
#include "engine/train/run_plan.h"
#include "kernels/device.h"

namespace strata::session {

// Sets the rate of this model in facts, measured on the run's GPU, or on that of rank 0. Leaves it
// as it is on other devices, and where ranks share the arithmetic of a block.
void measure_model(const model::ModelSpec& spec, const config::Options& options,
                   train::RunFacts& facts);

// The operations per second that a device reaches in a run with these options. Within the run's
// budget in the device's memory; 0 where that does not suffice, where measuring would take seconds,
// and for what cannot be planned.
double rate_of_model(model::ModelSpec spec, const config::Options& options,
                     const train::RunFacts& facts, kernels::Device& device);

}  // namespace strata::session
