// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101) on a range of a chunk, in one pass, with the
// formulas of torch.optim.AdamW. One element, every operation a separate IEEE f32 operation:
//
//   g = grad * grad_coefficient
//   p = p * decay                          decay = 1 - lr*weight_decay
//   m = m + (g - m) * one_minus_beta1
//   v = v * beta2 + (g * one_minus_beta2) * g
//   d = sqrt(v) / denominator_scale + eps  denominator_scale = sqrt(1 - beta2^step)
//   p = p + (m * minus_step_size) / d      minus_step_size = -lr / (1 - beta1^step)
//
//   hi, lo           [count]  u16  in/out   the split master of engine/base/dtype.h, or
//   master           [count]  f32  in/out   the whole master, with or without
//   hi               [count]  u16  out      to_f16 of the new master: weights of the fp16 recipe
//   exp_avg          [count]  f32  in/out
//   exp_avg_sq       [count]  f32  in/out   only read when next_exp_avg_sq is given
//   next_exp_avg_sq  [count]  f32  out      null: exp_avg_sq is updated in place; may be grad
//   grad             [count]  f32  in
//
// A NaN is written as 0x7fc00000 in every plane, as 0x7fc0 and 0 in hi and lo, and as 0x7e00 in hi
// alone. Every backend gives the same bits. Traffic: 28 bytes an element (16 read, 12 written), 30
// with hi beside the master; the roof is memory bandwidth.
namespace strata::kernels {

struct AdamWScalars {
  float grad_coefficient = 1.0f;
  float decay = 1.0f;
  float one_minus_beta1 = 0.1f;
  float beta2 = 0.999f;
  float one_minus_beta2 = 0.001f;
  float denominator_scale = 1.0f;
  float eps = 1e-8f;
  float minus_step_size = 0.0f;
};

struct AdamWSettings {
  double lr = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
};

// Computes the scalars in double, as PyTorch does, and rounds each once. `step` is 1 for the first
// update.
AdamWScalars adamw_scalars(const AdamWSettings& settings, int64_t step, double grad_coefficient);

struct AdamW {
  int64_t count = 0;
  uint16_t* hi = nullptr;
  uint16_t* lo = nullptr;
  float* master = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  float* next_exp_avg_sq = nullptr;
  const float* grad = nullptr;
  AdamWScalars scalars = {};
};

// Whether the given planes are one of the three forms.
inline bool is_adamw(const AdamW& op) {
  return op.lo ? op.hi && !op.master : op.master != nullptr;
}

}  // namespace strata::kernels
