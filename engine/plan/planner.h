// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/plan/input.h"
#include "engine/plan/plan.h"

namespace strata::plan {

// Seconds of one step of a plan, by prediction; smaller is better. It may look only at the program
// that a run repeats: step, or eval in inference.
using Predict = std::function<double(const Plan&)>;

struct PlannerOptions {
  int prefetch_depth = 0;  // segments and chunks ahead in the rings; 0 = let the planner choose
  bool may_keep = true;    // activations may be kept instead of recomputed
  bool must_keep = false;  // and have to be
  Predict predict;         // null: the first candidate that fits is taken
};

struct Candidate {
  std::string name;
  Placement placement;
};

struct PlannedRun {
  Plan plan;
  Placement placement;
  std::string name;  // of the winning candidate
  double predicted_s = 0;
  int candidates = 0;  // compared
};

// The smallest placement: nothing resident that need not be, rings as short as they can be.
Placement smallest_placement(const PlanInput& input);

// What every candidate grows from: the smallest, and without NVMe everything resident, since what
// has no room there must be. Throws as make_plan() does where it does not fit.
Placement least_placement(const PlanInput& input, const PlannerOptions& options);

// Every placement that is worth comparing and fits its budgets, without building plans.
std::vector<Candidate> candidates(const PlanInput& input, const PlannerOptions& options);

// Bytes of every arena for a placement.
std::array<int64_t, kArenaCount> bytes_of(const PlanInput& input, const Placement& placement);

// Places everything and plans all programs. Throws DoesNotFit (refusal.h) where even the smallest
// placement is over a budget, naming what it would need and the cheapest change that fits.
PlannedRun make_plan(const PlanInput& input, const PlannerOptions& options);

}  // namespace strata::plan
