// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/placement_base.h"

#include <algorithm>
#include <utility>

#include "engine/plan/refusal.h"

namespace strata::plan {
namespace {

// Moves what the host has no room for, and the device has, to the device.
void move_to_device(const PlanInput& input, const PlacementSearch& search, Placement& placement) {
  if (!input.device.discrete || search.fits(placement)) return;
  const auto fits_on_device = [&](const Placement& moved) {
    return search.bytes(moved)[static_cast<size_t>(Arena::kDevice)] <= input.device_budget;
  };
  Placement with_activations = placement;
  with_activations.activations_on_device = true;
  search.size_rings(with_activations, 0);
  if (fits_on_device(with_activations)) placement = with_activations;
  for (size_t s = 0; s < input.spec->segments.size(); ++s) {
    if (search.fits(placement)) return;
    Placement moved = placement;
    moved.home_on_device[s] = 1;
    search.size_rings(moved, 0);
    if (fits_on_device(moved)) placement = moved;
  }
}

// Keeps in host memory what NVMe has no room for.
void move_to_host(const PlanInput& input, const PlacementSearch& search, Placement& placement) {
  const auto has_room = [&](const Placement& moved) {
    return search.bytes(moved)[static_cast<size_t>(Arena::kNvme)] <= input.nvme_budget;
  };
  for (const ResidencyKind kind : {ResidencyKind::kCheckpoints, ResidencyKind::kGradients,
                                   ResidencyKind::kWeights, ResidencyKind::kState}) {
    if (has_room(placement)) return;
    search.make_resident_until(placement, kind, has_room);
  }
}

// Makes the device the home of everything.
void put_on_device(const PlanInput& input, const PlacementSearch& search, Placement& placement) {
  placement.activations_on_device = true;
  for (size_t s = 0; s < input.spec->segments.size(); ++s) {
    placement.home_on_device[s] = input.spec->segments[s].numel() > 0;
  }
  search.size_rings(placement, 0);
}

SmallerBatch cheapest_change(const PlanInput& input, const PlannerOptions& options) {
  PlanInput trial = input;
  for (int64_t rows = input.shape.cache_rows / 2; rows >= 1; rows /= 2) {
    trial.shape.cache_rows = rows;
    if (fits(trial, options)) return {.micro_batch = rows};
  }
  trial = input;
  for (int64_t length = input.shape.cache_positions / 2; length >= 16; length /= 2) {
    trial.shape.cache_positions = length;
    if (fits(trial, options)) return {.sequence_length = length};
  }
  if (input.shape.is_cached()) return {};
  trial = input;
  for (int64_t rows = input.shape.rows / 2; rows >= 1; rows /= 2) {
    trial.shape.rows = rows;
    if (fits(trial, options)) return {.micro_batch = rows};
  }
  trial = input;
  for (int count = input.micro_batches / 2; count >= 1; count /= 2) {
    trial.micro_batches = count;
    if (fits(trial, options)) return {.accumulate = count};
  }
  trial = input;
  for (int64_t length = input.shape.length / 2; length >= 16; length /= 2) {
    trial.shape.length = length;
    if (fits(trial, options)) return {.sequence_length = length};
  }
  return {};
}

[[noreturn]] void refuse(const PlanInput& input, const PlannerOptions& options,
                         const PlacementSearch& search,
                         const std::array<int64_t, kArenaCount>& bytes) {
  const std::pair<Arena, int64_t> budgets[] = {{Arena::kDevice, input.device_budget},
                                               {Arena::kHost, input.host_budget},
                                               {Arena::kNvme, input.nvme_budget}};
  std::vector<Shortage> shortages;
  for (const auto& [arena, budget] : budgets) {
    const int64_t need = bytes[static_cast<size_t>(arena)];
    if (need > budget) shortages.push_back({arena, need, budget});
  }
  const bool needs_space =
      input.nvme_budget > 0 &&
      search.bytes(search.smallest())[static_cast<size_t>(Arena::kNvme)] > input.nvme_budget;
  PlanInput larger_device = input;
  larger_device.device_budget = kNoLimit;
  const Remedies remedies = {
      .nvme = input.nvme_budget == 0 && options.may_use_nvme,
      .nvme_space = needs_space,
      .offload = input.nvme_budget == 0 && options.avoids_nvme,
      .device_memory = input.device.discrete && input.device_budget != kNoLimit &&
                       !options.device_is_whole && fits(larger_device, options),
      .device_is_whole = options.device_is_whole};
  throw DoesNotFit(std::move(shortages), cheapest_change(input, options), remedies);
}

}  // namespace

Placement forced_placement(const PlanInput& input, const PlannerOptions& options,
                           const PlacementSearch& search) {
  // What does not fit on NVMe must be resident, so without NVMe everything is.
  Placement base = search.smallest();
  if (input.nvme_budget == 0) {
    for (std::vector<char>* flags :
         {&base.hi_in_host, &base.state_in_host, &base.grad_in_host, &base.checkpoint_in_host}) {
      std::fill(flags->begin(), flags->end(), 1);
    }
    for (size_t s = 0; s < base.hi_in_host.size() && input.frozen_in_source; ++s) {
      base.hi_in_host[s] = input.spec->segments[s].trainable_numel > 0;
    }
    search.size_rings(base, 0);
  }
  if (options.must_keep) std::fill(base.keep.begin(), base.keep.end(), 1);
  if (options.must_be_on_device && input.device.discrete) {
    put_on_device(input, search, base);
    return base;
  }
  if (input.nvme_budget > 0) move_to_host(input, search, base);
  move_to_device(input, search, base);
  return base;
}

Placement base_placement(const PlanInput& input, const PlannerOptions& options,
                         const PlacementSearch& search) {
  Placement base = forced_placement(input, options, search);
  if (!search.fits(base)) refuse(input, options, search, search.bytes(base));
  return base;
}

bool fits(const PlanInput& input, const PlannerOptions& options) {
  const PlacementSearch search(input);
  return search.fits(forced_placement(input, options, search));
}

Placement least_placement(const PlanInput& input, const PlannerOptions& options) {
  return base_placement(input, options, PlacementSearch(input));
}

}  // namespace strata::plan
