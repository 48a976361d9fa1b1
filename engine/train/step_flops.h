// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/plan/input.h"
#include "engine/plan/plan.h"

namespace strata::train {

// Operations of a step's products on one rank.
struct StepFlops {
  double all = 0;
  double recomputed = 0;  // of activations that were not kept
  double of_model() const { return all - recomputed; }
};

// Of a plan that was made for the input.
StepFlops step_flops(const plan::PlanInput& input, const plan::Plan& plan);

}  // namespace strata::train
