// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/config/machine.h"
#include "engine/model/spec.h"
#include "engine/plan/rates.h"
#include "io/rate_limiter.h"

namespace strata::exec {

// Between machines, where a profile says nothing: 10 Gbit/s.
inline constexpr double kAssumedNetworkBytesPerS = 1.25e9;

struct RateContext {
  Recipe recipe = Recipe::kFp32;
  io::RateLimits limits = {};  // of --nvme-rate
  int threads = 1;
  // Ranks of a node. They share its drives, memory and, unless they have devices, its cores.
  int64_t ranks = 1;
  int64_t nodes = 1;
  bool processes = false;          // the ranks of a node are, and not threads
  int64_t device_ranks = 1;        // that share one GPU
  bool discrete = false;           // the device has memory of its own
  bool peers = false;              // and the ranks' devices send each other memory
  double compute_flops_per_s = 0;  // of this model (probe_compute); 0: use the profile
};

// The rates that a step will get, for the planner and the simulator.
plan::Rates rates_of(const config::Machine& machine, const RateContext& context);

// The best rates of the machine, each resource by itself, for the lower bound.
plan::Rates best_rates_of(const config::Machine& machine, const RateContext& context);

}  // namespace strata::exec
