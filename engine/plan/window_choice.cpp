// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/window_choice.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/model/footprint.h"
#include "engine/plan/lower_bound.h"
#include "engine/plan/memory_map.h"
#include "engine/shard/layout.h"

namespace strata::plan {
namespace {

constexpr int kEnough = 256;  // more save little memory, and take long to plan

std::vector<model::Footprint> footprints_of(const PlanInput& input) {
  std::vector<model::Footprint> footprints;
  for (int s = 0; s < static_cast<int>(input.spec->segments.size()); ++s) {
    footprints.push_back(model::footprint(*input.spec, s, input.shape, input.recipe, input.device));
  }
  return footprints;
}

Windows in_turn(int count) {
  return {count, PipelineOrder::kOneForwardOneBackward};
}

std::optional<Windows> most_windows(const PlanInput& input) {
  if (input.inference || input.mesh.pipeline > 1 || is_external(input, 0)) return std::nullopt;
  const int windows = windows_up_to(kEnough, input.micro_batches);
  if (windows == 1) return std::nullopt;
  return in_turn(windows);
}

}  // namespace

int windows_up_to(int most, int micro_batches) {
  int windows = std::min(most, micro_batches);
  while (micro_batches % windows != 0) --windows;
  return windows;
}

std::vector<Windows> smaller_windows(const PlanInput& input) {
  const std::optional<Windows> most = most_windows(input);
  if (!most) return {};
  std::vector<Windows> list = {*most};
  const auto root = static_cast<int>(std::sqrt(static_cast<double>(most->count)));
  int above = root + 1;
  while (input.micro_batches % above != 0) ++above;
  for (const int some : {windows_up_to(root, input.micro_batches), above}) {
    if (some > 1 && some < most->count) list.push_back(in_turn(some));
  }
  return list;
}

std::vector<Windows> faster_windows(const PlanInput& input, const Rates& rates,
                                    double predicted_s) {
  constexpr double kClearly = 0.97;
  const std::optional<Windows> most = most_windows(input);
  if (!most) return {};
  const std::vector<model::Footprint> footprints = footprints_of(input);
  const shard::Layout layout = shard::make_layout(*input.spec, input.mesh.shards());
  const LowerBoundInput bound = {.spec = *input.spec,
                                 .layout = layout,
                                 .footprints = footprints,
                                 .micro_batches = input.micro_batches,
                                 .boundary_bytes = boundary_tensor_bytes(input),
                                 .recipe = input.recipe,
                                 .holds_gradients = input.update().waits,
                                 .discrete = input.device.discrete,
                                 .device_bytes = input.device.discrete ? input.device_budget : 0,
                                 .host_bytes = input.host_budget,
                                 .mesh = input.mesh};
  std::vector<int> counts;
  for (int windows = 2; windows <= most->count; ++windows) {
    if (input.micro_batches % windows == 0) counts.push_back(windows);
  }
  const LowerBound least = lower_bound(bound, rates, counts);
  if (least.step_s >= kClearly * predicted_s) return {};
  // A plan may be far from its bound for reasons that windows do not change.
  const std::vector<int> one = {1};
  if (least.step_s >= kClearly * lower_bound(bound, rates, one).step_s) return {};
  if (least.passes == most->count) return {*most};
  return {in_turn(least.passes), *most};
}

}  // namespace strata::plan
