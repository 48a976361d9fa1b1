// SPDX-License-Identifier: Apache-2.0
#include "engine/train/step_flops.h"

#include "engine/plan/ground.h"

namespace strata::train {

StepFlops step_flops(const plan::PlanInput& input, const plan::Plan& plan) {
  const plan::Ground ground = plan::ground_of(input);
  StepFlops flops;
  for (const plan::Op& op : plan.program(plan::ProgramName::kStep).ops) {
    flops.all += op.flops;
    if (op.kind == plan::OpKind::kRecompute) flops.recomputed += op.flops;
    if (op.kind == plan::OpKind::kBackward && op.recomputes && op.flops > 0) {
      flops.recomputed += ground.footprints[static_cast<size_t>(op.segment)].recompute_flops;
    }
  }
  return flops;
}

}  // namespace strata::train
