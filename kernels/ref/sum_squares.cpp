// SPDX-License-Identifier: Apache-2.0
#include "kernels/sum_squares.h"

#include <algorithm>
#include <cmath>

#include "kernels/ref/ops.h"

namespace strata::kernels::ref {

void sum_squares(const SumSquares& op) {
  each_range(op, [](const float* range, int64_t numel, SquaresPartial* out) {
    double sum = 0.0;
    for (int64_t begin = 0; begin < numel; begin += kSumSquaresBlock) {
      const int64_t count = std::min(kSumSquaresBlock, numel - begin);
      double lane[16] = {};
      for (int64_t i = 0; i < count; ++i) {
        const double x = range[begin + i];
        lane[i % 16] += x * x;
      }
      for (int width = 8; width >= 1; width /= 2) {
        for (int j = 0; j < width; ++j) lane[j] += lane[j + width];
      }
      sum += lane[0];
    }
    *out = {sum, std::isfinite(sum) ? 0.0 : 1.0};
  });
}

}  // namespace strata::kernels::ref
