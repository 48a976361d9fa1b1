// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "kernels/ref/ops.h"
#include "kernels/typed.h"

namespace strata::kernels::ref {
namespace {

// Of one row: the largest logit, sum_v exp(z[v] - largest), and the logit of the target, or 0 where
// another rank has it.
struct Scores {
  double largest = -INFINITY;
  double sum = 0.0;
  double at_target = 0.0;
};

// Computes the logits z[v] of one row.
void logits(const LinearCrossEntropy& op, int64_t row, float* z) {
  for (int64_t v = 0; v < op.vocabulary; ++v) {
    double sum = 0.0;
    for (int64_t c = 0; c < op.cols; ++c) {
      sum += double{load(op.h, row * op.cols + c)} * load(op.dtype, op.w, v * op.cols + c);
    }
    if (op.cap > 0.0f) sum = op.cap * std::tanh(sum / op.cap);
    z[v] = static_cast<float>(sum);
  }
}

Scores scores_of(const LinearCrossEntropy& op, int64_t target, const float* z) {
  Scores scores;
  for (int64_t v = 0; v < op.vocabulary; ++v) {
    scores.largest = std::max(scores.largest, double{z[v]});
  }
  for (int64_t v = 0; v < op.vocabulary; ++v) scores.sum += std::exp(z[v] - scores.largest);
  if (target >= 0 && target < op.vocabulary) scores.at_target = z[target];
  return scores;
}

Scores scores_of_all_ranks(const LinearCrossEntropy& op, int64_t row) {
  const auto score = [&](int rank, int which) {
    return double{op.all_scores[(rank * op.rows + row) * kScoresOfRow + which]};
  };
  Scores all;
  for (int rank = 0; rank < op.ranks; ++rank) all.largest = std::max(all.largest, score(rank, 0));
  for (int rank = 0; rank < op.ranks; ++rank) {
    all.sum += score(rank, 1) * std::exp(score(rank, 0) - all.largest);
    all.at_target += score(rank, 2);
  }
  return all;
}

void store_scores(const LinearCrossEntropy& op, int64_t row, const Scores& scores) {
  float* to = op.scores + row * kScoresOfRow;
  to[0] = static_cast<float>(scores.largest);
  to[1] = static_cast<float>(scores.sum);
  to[2] = static_cast<float>(scores.at_target);
}

// Replaces the logits z by their gradient dz.
void gradient_of_logits(const LinearCrossEntropy& op, int64_t target, double lse, float* z) {
  for (int64_t v = 0; v < op.vocabulary; ++v) {
    const double part = op.cap > 0.0f ? double{z[v]} / op.cap : 0.0;
    const double change = std::exp(z[v] - lse) - (v == target ? 1.0 : 0.0);
    z[v] = static_cast<float>(op.grad_scale * change * (1.0 - part * part));
  }
}

void gradients_of_row(const LinearCrossEntropy& op, int64_t row, const float* dz) {
  for (int64_t v = 0; op.dw && v < op.vocabulary; ++v) {
    for (int64_t c = 0; c < op.cols; ++c) {
      op.dw[v * op.cols + c] += dz[v] * load(op.h, row * op.cols + c);
    }
  }
  for (int64_t c = 0; c < op.cols; ++c) {
    double sum = 0.0;
    for (int64_t v = 0; v < op.vocabulary; ++v) {
      sum += double{dz[v]} * load(op.dtype, op.w, v * op.cols + c);
    }
    store(op.dh, row * op.cols + c, static_cast<float>(sum));
  }
}

void row_without_target(const LinearCrossEntropy& op, int64_t row) {
  for (int64_t c = 0; op.dh && c < op.cols; ++c) store(op.dh, row * op.cols + c, 0.0f);
  if (op.scores) store_scores(op, row, {.largest = 0.0});
}

}  // namespace

void linear_cross_entropy(const LinearCrossEntropy& op) {
  STRATA_CHECK(is_one_call(op) && is_weight_type(op.dtype));
  STRATA_CHECK(op.workspace.bytes >= op.vocabulary * 4);
  if (op.dw && !op.accumulate) std::fill_n(op.dw, op.vocabulary * op.cols, 0.0f);
  float* z = reinterpret_cast<float*>(op.workspace.data);
  double loss_sum = 0.0;
  for (int64_t row = 0; row < op.rows; ++row) {
    STRATA_CHECK(op.targets[row] >= -1 && op.targets[row] < op.targets_end());
    if (op.targets[row] < 0) {
      row_without_target(op, row);
      continue;
    }
    const int64_t target = op.targets[row] - op.first;
    if (op.needs_logits()) logits(op, row, z);
    const Scores scores = op.all_scores ? scores_of_all_ranks(op, row) : scores_of(op, target, z);
    if (op.scores) store_scores(op, row, scores);
    const double lse = scores.largest + std::log(scores.sum);
    loss_sum += lse - scores.at_target;
    if (!op.dh) continue;
    gradient_of_logits(op, target, lse, z);
    gradients_of_row(op, row, z);
  }
  if (op.loss_sum) *op.loss_sum = loss_sum;
}

}  // namespace strata::kernels::ref
