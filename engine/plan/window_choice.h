// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "engine/plan/input.h"
#include "engine/plan/rates.h"

// In how many windows a step's micro-batches pass a model that is not divided. With more, weights
// move more often; fewer checkpoints wait for their backward, and fewer interiors have to be kept
// at a time.
namespace strata::plan {

// The largest number of windows up to `most` that divides the micro-batches.
int windows_up_to(int most, int micro_batches);

// As many windows as there can be, which need the least memory for activations. Nothing for one
// micro-batch, stages of a pipeline, units of a caller, and inference.
std::optional<Windows> most_windows(const PlanInput& input);

// Where one window takes `predicted_s`, those that may be clearly faster: the fewest that have the
// least lower bound, which may suffice, and the most, which leave most memory.
std::vector<Windows> faster_windows(const PlanInput& input, const Rates& rates, double predicted_s);

}  // namespace strata::plan
