// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/kernels/kernel_case.h"

// A backward against central differences of its forward.
namespace strata::kernels {

inline double weighted_sum(const Floats& values, const Floats& weights) {
  double sum = 0.0;
  for (size_t i = 0; i < values.size(); ++i) sum += double{values[i]} * weights[i];
  return sum;
}

// `loss` reads x by reference; `gradient` is what the backward gave. Forwards round to f32: 6e-8 of
// an output of about 1, over a step of 2*2e-2, is 2e-6; the third derivative's share is 1e-4 of a
// gradient of about 1 at most. Hence the tolerance of 1e-3.
inline void expect_gradient(Floats& x, const Floats& gradient,
                            const std::function<double()>& loss) {
  constexpr float kStep = 2e-2f;
  ASSERT_EQ(x.size(), gradient.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const float value = x[i];
    x[i] = value + kStep;
    const double above = loss(), above_at = x[i];
    x[i] = value - kStep;
    const double numeric = (above - loss()) / (above_at - x[i]);
    x[i] = value;
    EXPECT_NEAR(gradient[i], numeric, 1e-3 * std::max(1.0, std::fabs(numeric))) << i;
  }
}

}  // namespace strata::kernels
