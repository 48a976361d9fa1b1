// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cross_entropy.h"

namespace strata::kernels::cpu {

// Of one row, over all ranks: the largest logit, the sum of exp(z - largest), and the logit of the
// target.
struct AllScores {
  float largest = -std::numeric_limits<float>::infinity();
  double sum = 0.0;
  float at_target = 0.0f;

  double loss() const { return std::log(sum) + (double{largest} - at_target); }
};

inline AllScores all_scores_of(const LinearCrossEntropy& op, int64_t row) {
  const auto scores = [&](int rank) {
    return op.all_scores + (rank * op.rows + row) * kScoresOfRow;
  };
  AllScores all;
  for (int rank = 0; rank < op.ranks; ++rank) all.largest = std::max(all.largest, scores(rank)[0]);
  for (int rank = 0; rank < op.ranks; ++rank) {
    all.sum += scores(rank)[1] * std::exp(double{scores(rank)[0]} - all.largest);
    all.at_target += scores(rank)[2];
  }
  return all;
}

}  // namespace strata::kernels::cpu
