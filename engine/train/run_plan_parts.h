// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/plan/refusal.h"
#include "engine/train/run_plan.h"

// What the files share that make a RunPlan.
namespace strata::train {

int64_t ranks_on_node(const config::Options& options, const RunFacts& facts);

// Ranks of a machine that are given one GPU share it.
int64_t ranks_on_device(const config::Options& options, const RunFacts& facts);

// Whether the ranks' devices send each other memory: where --device-exchange says so, or leaves it
// to what GPUs can do. Throws Error{kConfig} where they are to, and cannot.
bool exchanges_directly(const config::Options& options, const RunFacts& facts,
                        const kernels::DeviceDescription& device);

// Whether --host-memory is more than this machine has.
bool is_beyond_machine(const config::Options& options, const RunFacts& facts);

// Both must outlive the result.
plan::PlannerOptions planner_options(const config::Options& options, const RunFacts& facts);

// The ops of a rank's step, about. They grow with segments times micro-batches, and with chunks.
int64_t ops_of(const plan::PlanInput& input);

// The part of --host-memory outside of arenas. The checksum table has the size for all planes and a
// gradient on NVMe.
int64_t all_outside_bytes(const plan::PlanInput& input, const config::Options& options,
                          const RunFacts& facts);

// What of --host-memory is left to the arenas of each rank.
int64_t host_budget_for_arenas(const plan::PlanInput& input, const config::Options& options,
                               const RunFacts& facts);

// The optimizer modes that give the results that these options ask for; the planner takes the
// faster one.
std::vector<plan::OptimizerMode> modes_of(const config::Options& options, bool inference);

// How a step's micro-batches may pass the stages: in more windows a stage moves its weights more
// often, and waits less for the others. One window for a model that is not divided, of which others
// may be faster (plan/window_choice.h), or what the options say.
std::vector<plan::Windows> windows_of(const config::Options& options);

// Whether context ranks swap heads: where --context-exchange says so, or finds that better.
bool swaps_heads(const config::Options& options, const model::Architecture& architecture,
                 const kernels::DeviceDescription& device);

// How micro-batches pass the model, and when weights are updated.
struct Passes {
  plan::Windows windows;
  plan::OptimizerMode mode = plan::OptimizerMode::kDeferred;
};

// Those that may fit where others do not: for a model that is not divided one window and the most.
std::vector<Passes> passes_of(const RunPlan& run, const config::Options& options);

// Sets them in run.input, with the memory that is left to arenas: more windows have more ops.
void set_passes(const Passes& passes, RunPlan& run, const config::Options& options,
                const RunFacts& facts);

// Fills run.slices for the mesh of run.input, with so many chunks of each stage.
void slice(int64_t chunks, RunPlan& run);

// Makes run.input that of the first rank of a stage.
plan::PlanInput input_of_stage(int stage, const RunPlan& run);
void turn_to_stage(int stage, RunPlan& run);

// The best plan of the first rank of each stage. Slices the model anew where more chunks are
// faster. Sets the windows and the mode of run.input, which is that of rank 0 again; when a stage
// does not fit, it is that stage's.
std::vector<plan::PlannedRun> plan_stages(RunPlan& run, const config::Options& options,
                                          const RunFacts& facts);

// Of a step in which the stages wait for each other.
plan::Cost cost_of(const std::vector<plan::PlannedRun>& stages, const RunPlan& run);

// The bytes for want of which run.input is refused.
int64_t missing_bytes(const plan::DoesNotFit& why, const RunPlan& run);

// Of refusals the one that lacks least, and what was refused.
struct LeastRefusal {
  std::optional<plan::DoesNotFit> why = {};
  int64_t missing = 0;  // bytes
  plan::PlanInput input = {};

  // Of run.input.
  void add(const plan::DoesNotFit& other, const RunPlan& run);
};

// Explains a refusal, which is about arenas of a rank, in terms of the user's budget for all ranks
// of a machine.
[[noreturn]] void explain_refusal(const RunPlan& run, const config::Options& options,
                                  const RunFacts& facts, const plan::DoesNotFit& why);

}  // namespace strata::train
