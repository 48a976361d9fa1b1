// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/config/json.h"
#include "engine/plan/simulator.h"
#include "engine/train/run_plan.h"

namespace strata::train {

// A plan in the user's terms, as text and as JSON.
struct PlanReport {
  plan::SimulationResult simulated;  // of one steady step
  int64_t read_bytes = 0;            // in a step, all ranks: from NVMe and the model's files
  int64_t write_bytes = 0;
  int64_t file_bytes = 0;  // of read_bytes: frozen weights from the model's files
  double parameters = 0;
  double tokens = 0;       // of a step, all ranks
  std::string bottleneck;  // "compute", "NVMe", ...
};

PlanReport report_of(const RunPlan& run);

// Bytes per tier by purpose, predicted step time by resource with the bottleneck, bytes written and
// wear.
std::string plan_table(const RunPlan& run, const PlanReport& report);
config::Json plan_json(const RunPlan& run, const PlanReport& report);

}  // namespace strata::train
