// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/plan/refusal.h"
#include "engine/train/run_plan.h"

// What run_plan.cpp and run_refusal.cpp share.
namespace strata::train {

int64_t ranks_on_node(const config::Options& options, const RunFacts& facts);

// Whether --host-memory is more than this machine has.
bool is_beyond_machine(const config::Options& options, const RunFacts& facts);

// The budget of a rank in its device's memory.
int64_t device_budget_of(const config::Options& options, const RunFacts& facts);

// Both must outlive the result.
plan::PlannerOptions planner_options(const config::Options& options, const RunFacts& facts);

// The part of --host-memory outside of arenas. The checksum table has the size for all planes and a
// gradient on NVMe.
int64_t all_outside_bytes(const plan::PlanInput& input, const config::Options& options,
                          const RunFacts& facts);

// What of --host-memory is left to the arenas of each rank.
int64_t host_budget_for_arenas(const plan::PlanInput& input, const config::Options& options,
                               const RunFacts& facts);

// Explains a refusal, which is about arenas of a rank, in terms of the user's budget for all ranks
// of a machine.
[[noreturn]] void explain_refusal(const RunPlan& run, const config::Options& options,
                                  const RunFacts& facts, const plan::DoesNotFit& why);

}  // namespace strata::train
