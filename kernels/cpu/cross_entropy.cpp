// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/cross_entropy_layout.h"
#include "kernels/cpu/cross_entropy_scores.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/typed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cpp"
#include "kernels/cpu/simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/cpu/simd_typed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

float largest_of(const float* z, int64_t count) {
  const F32 d;
  VF32 largest = hn::Set(d, -std::numeric_limits<float>::infinity());
  for_vectors(count, [&](auto, int64_t i, auto end) HWY_ATTR {
    VF32 value = load_as(d, z + i, end);
    if constexpr (decltype(end)::kTail) {
      value = hn::IfThenElse(hn::FirstN(d, end.count), value, largest);
    }
    largest = hn::Max(largest, value);
  });
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

// The sum of exp(z - largest); with kKeep, z becomes that exponential. Sums in f32 within kRun
// elements and in f64 beyond.
template <bool kKeep>
double sum_exp(float* z, int64_t count, float largest) {
  constexpr int64_t kRun = 2048;
  const F32 d;
  const VF32 shift = hn::Set(d, largest);
  double total = 0.0;
  for (int64_t begin = 0; begin < count; begin += kRun) {
    VF32 sum = hn::Zero(d);
    float* run = z + begin;
    for_vectors(std::min(kRun, count - begin), [&](auto, int64_t i, auto end) HWY_ATTR {
      VF32 value = hn::Exp(d, hn::Sub(load_as(d, run + i, end), shift));
      if constexpr (decltype(end)::kTail) {
        value = hn::IfThenElseZero(hn::FirstN(d, end.count), value);
      }
      if constexpr (kKeep) store_as(d, value, run + i, end);
      sum = hn::Add(sum, value);
    });
    total += hn::GetLane(hn::SumOfLanes(d, sum));
  }
  return total;
}

// Exponentials below this share of the row's largest count as zero. Their gradients are far below
// rounding, and subnormal numbers would slow the products down a hundredfold.
constexpr float kNegligible = 1e-25f;

void scale(float* z, int64_t count, float factor) {
  const F32 d;
  for_vectors(count, [&](auto, int64_t i, auto end) HWY_ATTR {
    const VF32 value = load_as(d, z + i, end);
    const auto counts = hn::Gt(value, hn::Set(d, kNegligible));
    const VF32 scaled = hn::Mul(value, hn::Set(d, factor));
    store_as(d, hn::IfThenElseZero(counts, scaled), z + i, end);
  });
}

// z = cap * tanh(z / cap).
void cap_row(float* z, int64_t count, float cap) {
  const F32 d;
  for_vectors(count, [&](auto, int64_t i, auto end) HWY_ATTR {
    const VF32 part = hn::Tanh(d, hn::Mul(load_as(d, z + i, end), hn::Set(d, 1.0f / cap)));
    store_as(d, hn::Mul(part, hn::Set(d, cap)), z + i, end);
  });
}

double row_loss(float* z, int64_t count, int64_t target, float cap) {
  if (cap > 0.0f) cap_row(z, count, cap);
  const float largest = largest_of(z, count);
  const double sum = sum_exp<false>(z, count, largest);
  return std::log(sum) + (double{largest} - z[target]);
}

// The scores of cross_entropy.h.
void row_scores(float* z, int64_t count, int64_t target, float cap, float* scores) {
  if (cap > 0.0f) cap_row(z, count, cap);
  scores[0] = largest_of(z, count);
  scores[1] = static_cast<float>(sum_exp<false>(z, count, scores[0]));
  scores[2] = target >= 0 && target < count ? z[target] : 0.0f;
}

// Replaces capped logits by their gradient. Computes the exponentials again, because the slope of
// the cap needs the logits. The target may be outside of the logits.
void capped_gradient(float* z, int64_t count, int64_t target, double log_sum_exp, float grad_scale,
                     float cap) {
  const bool has_target = target >= 0 && target < count;
  const float at_target = has_target ? z[target] : 0.0f;
  const F32 d;
  const VF32 lse = hn::Set(d, static_cast<float>(log_sum_exp));
  const auto slope = [&](VF32 value) HWY_ATTR {
    const VF32 part = hn::Mul(value, hn::Set(d, 1.0f / cap));
    return hn::NegMulAdd(part, part, hn::Set(d, 1.0f));
  };
  for_vectors(count, [&](auto, int64_t i, auto end) HWY_ATTR {
    const VF32 value = load_as(d, z + i, end);
    const VF32 p = hn::Exp(d, hn::Sub(value, lse));
    const VF32 change = hn::Mul(hn::Mul(p, hn::Set(d, grad_scale)), slope(value));
    store_as(d, hn::IfThenElseZero(hn::Gt(p, hn::Set(d, kNegligible)), change), z + i, end);
  });
  if (has_target) z[target] -= grad_scale * hn::GetLane(slope(hn::Set(d, at_target)));
}

// Replaces the logits z by their gradient and returns the loss.
double row_loss_and_gradient(float* z, int64_t count, int64_t target, float grad_scale, float cap) {
  if (cap > 0.0f) {
    const double loss = row_loss(z, count, target, cap);
    capped_gradient(z, count, target, loss + z[target], grad_scale, cap);
    return loss;
  }
  const float at_target = z[target];
  const float largest = largest_of(z, count);
  const double sum = sum_exp<true>(z, count, largest);
  scale(z, count, static_cast<float>(grad_scale / sum));
  z[target] -= grad_scale;
  return std::log(sum) + (double{largest} - at_target);
}

// Replaces one rank's logits by their gradient, for which the target may be another rank's.
void row_gradient(float* z, int64_t count, int64_t target, const AllScores& all, float grad_scale,
                  float cap) {
  if (cap > 0.0f) {
    cap_row(z, count, cap);
    return capped_gradient(z, count, target, all.largest + std::log(all.sum), grad_scale, cap);
  }
  sum_exp<true>(z, count, all.largest);
  scale(z, count, static_cast<float>(grad_scale / all.sum));
  if (target >= 0 && target < count) z[target] -= grad_scale;
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
namespace cpu {
namespace {

HWY_EXPORT(row_loss);
HWY_EXPORT(row_loss_and_gradient);
HWY_EXPORT(row_scores);
HWY_EXPORT(row_gradient);

// Returns the loss of a row, or writes its scores. With dh, replaces its logits by their gradient.
double loss_of(const LinearCrossEntropy& op, int64_t row, float* z) {
  float* scores = op.scores ? op.scores + row * kScoresOfRow : nullptr;
  if (op.targets[row] < 0) {
    if (op.dh) std::fill_n(z, op.vocabulary, 0.0f);
    if (scores) std::fill_n(scores, kScoresOfRow, 0.0f);
    return 0.0;
  }
  const int64_t count = op.vocabulary, target = op.targets[row] - op.first;
  if (scores) {
    HWY_DYNAMIC_DISPATCH(row_scores)(z, count, target, op.cap, scores);
    return 0.0;
  }
  if (op.all_scores) {
    const AllScores all = all_scores_of(op, row);
    if (op.dh) HWY_DYNAMIC_DISPATCH(row_gradient)(z, count, target, all, op.grad_scale, op.cap);
    return all.loss();
  }
  if (!op.dh) return HWY_DYNAMIC_DISPATCH(row_loss)(z, count, target, op.cap);
  return HWY_DYNAMIC_DISPATCH(row_loss_and_gradient)(z, count, target, op.grad_scale, op.cap);
}

// The gradients of a chunk of rows from those of its logits.
void gradient_products(const LinearCrossEntropy& op, int64_t begin, int64_t rows, const float* dz,
                       const Workspace& rest) {
  if (op.dw) {
    matmul_weight({.rows = rows,
                   .outputs = op.vocabulary,
                   .inputs = op.cols,
                   .dy = dz,
                   .x = op.h + begin * op.cols,
                   .dw = op.dw,
                   .accumulate = op.accumulate || begin > 0,
                   .workspace = rest});
  }
  if (op.dh) {
    matmul_input({.dtype = op.dtype,
                  .rows = rows,
                  .outputs = op.vocabulary,
                  .inputs = op.cols,
                  .dy = dz,
                  .w = op.w,
                  .dx = op.dh + begin * op.cols,
                  .workspace = rest});
  }
}

}  // namespace

void linear_cross_entropy(const LinearCrossEntropy& op) {
  STRATA_CHECK(is_one_call(op) && is_weight_type(op.dtype));
  STRATA_CHECK(op.workspace.bytes >= workspace_bytes(op, thread_count()));
  for (int64_t row = 0; row < op.rows; ++row) {
    STRATA_CHECK(op.targets[row] >= -1 && op.targets[row] < op.targets_end());
  }
  const CrossEntropyLayout layout = layout_of(op);
  float* z = reinterpret_cast<float*>(op.workspace.data);
  double* losses = reinterpret_cast<double*>(op.workspace.data + layout.losses_offset);
  const Workspace rest = {op.workspace.data + layout.product_offset,
                          op.workspace.bytes - layout.product_offset};
  double loss_sum = 0.0;
  for (int64_t begin = 0; begin < op.rows; begin += layout.rows) {
    const int64_t rows = std::min(layout.rows, op.rows - begin);
    if (op.needs_logits()) {
      MatMulForward product = logits_product(op, rows);
      product.x = op.h + begin * op.cols;
      product.y = z;
      product.workspace = rest;
      matmul_forward(product);
    }
    parallel_for(rows, [&](int64_t row, int) {
      losses[row] = loss_of(op, begin + row, z + row * op.vocabulary);
    });
    for (int64_t row = 0; row < rows; ++row) loss_sum += losses[row];
    gradient_products(op, begin, rows, z, rest);
  }
  if (op.loss_sum) *op.loss_sum = loss_sum;
}

}  // namespace cpu

}  // namespace strata::kernels
#endif  // HWY_ONCE
