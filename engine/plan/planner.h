// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/plan/input.h"
#include "engine/plan/plan.h"

namespace strata::plan {

// Predicts the seconds of one step of a plan. It may use only the program that a run repeats: step,
// or repeated() in inference.
using Predict = std::function<double(const Plan&)>;

// The program that a run repeats.
ProgramName repeated(const PlanInput& input);

struct PlannerOptions {
  int prefetch_depth = 0;  // segments and chunks ahead in the rings; 0 = let the planner choose
  bool may_keep = true;    // activations may be kept instead of recomputed
  bool must_keep = false;  // activations must be kept
  bool must_be_on_device = false;  // a discrete device must be the home of everything
  bool may_use_nvme = true;        // a refusal of a run without a drive may ask for one
  bool avoids_nvme = false;        // by an option, which a refusal may ask to leave out
  bool device_is_whole = false;    // the device's budget is all that it has
  // The host budget that a smaller batch would leave, for the advice of a refusal; null: the same.
  std::function<int64_t(const PlanInput&)> host_budget_with = nullptr;
  Predict predict = nullptr;  // null: the first candidate that fits is taken
};

struct Candidate {
  std::string name;
  Placement placement;
};

// What each repetition of the program that a run repeats costs.
struct Cost {
  double predicted_s = 0;
  int64_t written_bytes = 0;  // to NVMe
};

// The better one takes less time; where a prediction cannot tell the two apart, it wears drives
// less.
bool is_better(const Cost& a, const Cost& b);

struct PlannedRun {
  Plan plan;
  Placement placement;
  std::string name;  // of the winning candidate
  Cost cost;
  int candidates = 0;  // compared
};

// The smallest placement: only what must be resident is, and rings are as short as possible.
Placement smallest_placement(const PlanInput& input);

// The placement from which every candidate grows: the smallest one; without NVMe, everything is
// resident. Throws as make_plan() does when it does not fit.
Placement least_placement(const PlanInput& input, const PlannerOptions& options);

// Whether make_plan() finds a placement.
bool fits(const PlanInput& input, const PlannerOptions& options);

// Every placement that is worth comparing and fits its budgets, without building plans.
std::vector<Candidate> candidates(const PlanInput& input, const PlannerOptions& options);

// Bytes of every arena for a placement.
std::array<int64_t, kArenaCount> bytes_of(const PlanInput& input, const Placement& placement);

// Chooses a placement and plans all programs. When even the smallest placement exceeds a budget,
// throws DoesNotFit (refusal.h) with the needed bytes and the smallest change that fits.
PlannedRun make_plan(const PlanInput& input, const PlannerOptions& options);

// About that plan, in a part of the time: the best of the policies' placements. Its plan has the
// repeated program alone, in which an op may be about several chunks. Throws as make_plan(). Needs
// `predict`.
PlannedRun rough_plan(const PlanInput& input, const PlannerOptions& options);

}  // namespace strata::plan
