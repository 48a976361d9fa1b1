// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "kernels/ref/ops.h"
#include "kernels/typed.h"

namespace strata::kernels::ref {
namespace {

// Computes the logits z[v] of one row; returns log sum exp.
double logits(const LinearCrossEntropy& op, int64_t row, float* z) {
  double largest = -INFINITY;
  for (int64_t v = 0; v < op.vocabulary; ++v) {
    double sum = 0.0;
    for (int64_t c = 0; c < op.cols; ++c) {
      sum += double{load(op.h, row * op.cols + c)} * load(op.dtype, op.w, v * op.cols + c);
    }
    if (op.cap > 0.0f) sum = op.cap * std::tanh(sum / op.cap);
    z[v] = static_cast<float>(sum);
    largest = std::max(largest, double{z[v]});
  }
  double total = 0.0;
  for (int64_t v = 0; v < op.vocabulary; ++v) total += std::exp(z[v] - largest);
  return largest + std::log(total);
}

// Replaces the logits z by their gradient dz.
void gradient_of_logits(const LinearCrossEntropy& op, int64_t target, double lse, float* z) {
  for (int64_t v = 0; v < op.vocabulary; ++v) {
    const double part = op.cap > 0.0f ? double{z[v]} / op.cap : 0.0;
    const double change = std::exp(z[v] - lse) - (v == target ? 1.0 : 0.0);
    z[v] = static_cast<float>(op.grad_scale * change * (1.0 - part * part));
  }
}

}  // namespace

void linear_cross_entropy(const LinearCrossEntropy& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0 && op.vocabulary > 0 && is_float_or_bf16(op.dtype));
  STRATA_CHECK(op.workspace.bytes >= op.vocabulary * 4 && (op.dh || !op.dw));
  if (op.dw && !op.accumulate) std::fill_n(op.dw, op.vocabulary * op.cols, 0.0f);
  float* z = reinterpret_cast<float*>(op.workspace.data);
  *op.loss_sum = 0.0;
  for (int64_t row = 0; row < op.rows; ++row) {
    const int64_t target = op.targets[row];
    STRATA_CHECK(target >= -1 && target < op.vocabulary);
    if (target < 0) {
      for (int64_t c = 0; op.dh && c < op.cols; ++c) store(op.dh, row * op.cols + c, 0.0f);
      continue;
    }
    const double lse = logits(op, row, z);
    *op.loss_sum += lse - z[target];
    if (!op.dh) continue;
    gradient_of_logits(op, target, lse, z);
    for (int64_t v = 0; op.dw && v < op.vocabulary; ++v) {
      for (int64_t c = 0; c < op.cols; ++c) {
        op.dw[v * op.cols + c] += z[v] * load(op.h, row * op.cols + c);
      }
    }
    for (int64_t c = 0; c < op.cols; ++c) {
      double sum = 0.0;
      for (int64_t v = 0; v < op.vocabulary; ++v) {
        sum += double{z[v]} * load(op.dtype, op.w, v * op.cols + c);
      }
      store(op.dh, row * op.cols + c, static_cast<float>(sum));
    }
  }
}

}  // namespace strata::kernels::ref
