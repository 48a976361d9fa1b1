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
    if (op.segment < 0) continue;
    const model::Footprint& print = ground.footprints[static_cast<size_t>(op.segment)];
    if (op.kind == plan::OpKind::kBackward && op.recomputes && op.flops > 0) {
      flops.recomputed += print.recompute_flops;
    }
    // Logits are made again where the parts of the loss are cut by an exchange.
    if (op.kind == plan::OpKind::kLoss && op.part == 1 && op.flops > 0) {
      flops.recomputed += print.forward_flops;
    }
  }
  return flops;
}

}  // namespace strata::train
