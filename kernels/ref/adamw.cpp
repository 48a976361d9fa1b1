// SPDX-License-Identifier: Apache-2.0
#include "kernels/adamw.h"

#include <cmath>

#include "engine/base/dtype.h"
#include "kernels/ref/ops.h"

namespace strata::kernels {

AdamWScalars adamw_scalars(const AdamWSettings& settings, int64_t step, double grad_coefficient) {
  STRATA_CHECK(step >= 1);
  const double t = static_cast<double>(step);
  const double correction1 = 1.0 - std::pow(settings.beta1, t);
  const double correction2 = 1.0 - std::pow(settings.beta2, t);
  return {
      .grad_coefficient = static_cast<float>(grad_coefficient),
      .decay = static_cast<float>(1.0 - settings.lr * settings.weight_decay),
      .one_minus_beta1 = static_cast<float>(1.0 - settings.beta1),
      .beta2 = static_cast<float>(settings.beta2),
      .one_minus_beta2 = static_cast<float>(1.0 - settings.beta2),
      .denominator_scale = static_cast<float>(std::sqrt(correction2)),
      .eps = static_cast<float>(settings.eps),
      .minus_step_size = static_cast<float>(-(settings.lr / correction1)),
  };
}

namespace ref {

void adamw(const AdamW& op) {
  STRATA_CHECK(is_adamw(op));
  const AdamWScalars& s = op.scalars;
  float* next_exp_avg_sq = op.next_exp_avg_sq ? op.next_exp_avg_sq : op.exp_avg_sq;
  for (int64_t i = 0; i < op.count; ++i) {
    const float g = op.grad[i] * s.grad_coefficient;
    float p = op.master ? op.master[i] : join_master(op.hi[i], op.lo[i]);
    p = p * s.decay;
    const float m = op.exp_avg[i] + (g - op.exp_avg[i]) * s.one_minus_beta1;
    const float v = op.exp_avg_sq[i] * s.beta2 + (g * s.one_minus_beta2) * g;
    const float d = std::sqrt(v) / s.denominator_scale + s.eps;
    p = p + (m * s.minus_step_size) / d;
    op.exp_avg[i] = canonical(m);
    next_exp_avg_sq[i] = canonical(v);
    if (op.master) {
      op.master[i] = canonical(p);
      if (op.hi) op.hi[i] = to_f16(p);
    } else {
      const SplitMaster split = split_master(p);
      op.hi[i] = split.hi;
      op.lo[i] = split.lo;
    }
  }
}

}  // namespace ref
}  // namespace strata::kernels
