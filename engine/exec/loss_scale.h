// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "engine/base/recipe.h"

// Dynamic loss scaling (Micikevicius et al. 2018, arXiv:1710.03740) with the constants of
// torch.amp.GradScaler. Gradients of activations in fp16 that are below 6e-8 would become zero, so
// the loss is multiplied by a factor, and the update divides by it. A step whose gradients are not
// finite updates nothing and halves the factor; 2000 steps in a row without one double it.
namespace strata::exec {

struct LossScale {
  double factor = 1;        // a power of two, at least 1
  int64_t clean_steps = 0;  // since the factor last changed

  bool operator==(const LossScale&) const = default;
};

inline constexpr double kLossScaleMost = 0x1p40;  // gradients and their squares stay in range
inline constexpr int64_t kLossScaleGrowthSteps = 2000;

constexpr LossScale first_loss_scale(Recipe recipe) {
  return {.factor = scales_loss(recipe) ? 0x1p16 : 1.0};
}

// Of the step after one whose gradients were finite or not.
constexpr LossScale next_loss_scale(const LossScale& scale, bool finite) {
  if (!finite) return {.factor = scale.factor / 2};
  if (scale.clean_steps + 1 < kLossScaleGrowthSteps) {
    return {.factor = scale.factor, .clean_steps = scale.clean_steps + 1};
  }
  return {.factor = scale.factor < kLossScaleMost ? scale.factor * 2 : scale.factor};
}

// What a checkpoint keeps of the updates so far, beside the state.
struct UpdateHistory {
  int64_t updates = 0;                       // applied
  std::optional<LossScale> loss_scale = {};  // of the next step; nothing: that of a first step
};

}  // namespace strata::exec
