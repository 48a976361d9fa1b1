// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/config/json.h"
#include "engine/plan/simulator.h"
#include "engine/train/run_plan.h"

namespace strata::train {

// The whole run. Without a number of steps, all is 0.
// Of a whole run, or of the steps that are left of it.
struct RunTotals {
  int64_t steps = 0;  // of the whole run
  int64_t left = 0;
  double seconds = 0;
  double tokens = 0;
  double write_bytes = 0;
  double checkpoints = 0;  // as often as --checkpoint-every says, and at the end
  double drive_life = 0;   // the share of what all drives are rated for; 1: worn out
};

// A plan in the user's terms, as text and as JSON.
struct PlanReport {
  plan::SimulationResult simulated;  // of one steady step
  PlanTotals totals;
  double parameters = 0;
  double trained_parameters = 0;
  double state_bytes_per_parameter = 0;  // of a trained one: weights, moments and gradient
  double tokens = 0;                     // of a step, all ranks
  double recompute_s = 0;                // in a step, for activations that were not kept
  std::string bottleneck;                // see bottleneck_of()
  double rated_write_bytes = 0;          // of all drives
  int64_t checkpoint_bytes = 0;          // of one checkpoint
  RunTotals run;
  std::string identity;  // of two reports alike where their plans are
  double tokens_per_s() const { return tokens / simulated.step_s; }
};

PlanReport report_of(const RunPlan& run);

// The disk space of a checkpoint of all ranks.
int64_t checkpoint_bytes(const RunPlan& run);

// A part of the machine, and how long it works in a step. Reads and writes of the drives are one
// part: they share what the drives can do, whether they move at once or take turns.
struct BusyPart {
  const char* name = "";  // "compute", "NVMe drives", "optimizer", "device link", "collectives"
  plan::Workers workers = 0;
  double seconds = 0;
};

// All of them, the longest first.
std::vector<BusyPart> parts_of(const plan::SimulationResult& result);

// The part that works longest, and the second where it works nearly as long and neither works all
// of the step: then each waits for the other at times.
std::vector<BusyPart> limits_of(const plan::SimulationResult& result);

// The names of these, such as "compute and NVMe drives"; "NVMe reads" or "NVMe writes" if that is
// nearly all that the drives do.
std::string bottleneck_of(const plan::SimulationResult& result);

// Where state lies and why, the predicted time of a step, what binds it, wear, and the whole run.
// `explains` adds to each line what it means.
std::string plan_table(const RunPlan& run, const PlanReport& report, bool explains = false);
config::Json plan_json(const RunPlan& run, const PlanReport& report);

// "1.36 PB", in the decimal units of drives.
std::string format_drive_bytes(double bytes);
// "0.37%", with two digits.
std::string format_share(double share);

}  // namespace strata::train
