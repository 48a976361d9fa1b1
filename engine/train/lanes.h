// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <vector>

#include "engine/config/json.h"
#include "engine/exec/instance.h"
#include "engine/train/run_plan.h"

// The work of the lanes in one step, small enough to draw and to keep with the run.
namespace strata::train {

struct LaneSpan {
  plan::OpKind kind = plan::OpKind::kForward;
  double begin_s = 0;
  double end_s = 0;
  bool operator==(const LaneSpan&) const = default;
};

// The spans of a lane ascend and do not overlap. The first op of the step begins at 0.
struct StepLanes {
  std::array<std::vector<LaneSpan>, plan::kLaneCount> lanes;
  double end_s = 0;  // of the last op
};

// Joins spans that follow each other within `gap_s`, and spans shorter than that with what they
// follow; `spans` ascend by begin. A lane then has at most two spans for each `gap_s`.
std::vector<LaneSpan> joined_spans(std::span<const LaneSpan> spans, double gap_s);

// Of one steady step on the simulator's clock. Without spans if the step has too many ops to
// simulate them all again.
StepLanes predicted_lanes(const RunPlan& run);

// The lanes of a step that recorded its times.
StepLanes measured_lanes(const plan::Plan& plan, const exec::Instance& instance);

// {"end_s": 0.5, "lanes": {"compute": [["forward", 0.0, 0.1], ...], ...}}, joined to at most 1,000
// spans a lane.
config::Json lanes_json(const StepLanes& step);

}  // namespace strata::train
