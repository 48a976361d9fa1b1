// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/config/json.h"
#include "engine/config/options.h"
#include "engine/train/plan_report.h"
#include "engine/train/trainer.h"

// What a run directory keeps of plan and end, for `strata report` and for scripts.
namespace strata::train {

// The memory of a run's processes. Arenas are resident in full from the start; the rest is counted
// after the last step.
struct RunMemory {
  memory::ProcessMemory process;
  int64_t arena_bytes = 0;  // an emulated device's memory is host memory to the kernel, a GPU's not
  int64_t counted_bytes() const { return process.counted_bytes(arena_bytes); }
};
RunMemory memory_of(const RunPlan& plan, const TrainResult& result);

// Positions of all sequences of the steps that were done, a second.
double tokens_per_s(const config::Options& options, const TrainResult& result);

// summary.json: what was trained, times by cause, bytes, memory and the last checkpoint. Times and
// losses are null when no step was left to do.
config::Json summary_json(const config::Options& options, const RunPlan& plan,
                          const TrainResult& result, double total_s);

// plan.json: plan_json(), and of a step the predicted waits by cause and lanes; the drives' rating.
config::Json plan_record(const RunPlan& run, const PlanReport& report);

}  // namespace strata::train
