// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/plan/input.h"
#include "engine/plan/rates.h"

// In how many windows a step's micro-batches pass a model that is not divided. With more, weights
// move more often; fewer checkpoints wait for their backward, and fewer interiors have to be kept
// at a time.
namespace strata::plan {

// The largest number of windows up to `most` that divides the micro-batches.
int windows_up_to(int most, int micro_batches);

// Those that may fit where one window does not: as many as there can be, which need least memory
// for activations; and about the root of that, because each window adds ops, and the plan itself
// takes memory. Nothing for one micro-batch, stages of a pipeline, units of a caller, inference.
std::vector<Windows> smaller_windows(const PlanInput& input);

// Where one window takes `predicted_s`, those that may be clearly faster: the fewest that have the
// least lower bound, which may suffice, and the most, which leave most memory.
std::vector<Windows> faster_windows(const PlanInput& input, const Rates& rates, double predicted_s);

}  // namespace strata::plan
