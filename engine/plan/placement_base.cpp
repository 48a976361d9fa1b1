// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/placement_base.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/base/units.h"
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

// The largest of begin / 2, begin / 4, ... that fits, down to `least`; 0: none.
int64_t halved_to_fit(const PlanInput& input, const PlannerOptions& options, int64_t begin,
                      int64_t least, void (*set)(PlanInput&, int64_t)) {
  const auto fits_with = [&](int64_t value) {
    PlanInput trial = input;
    set(trial, value);
    if (options.host_budget_with) trial.host_budget = options.host_budget_with(trial);
    return fits(trial, options);
  };
  if (begin / 2 < least || !fits_with(least)) return 0;
  for (int64_t value = begin / 2; value >= least; value /= 2) {
    if (fits_with(value)) return value;
  }
  return 0;
}

SmallerBatch cheapest_change(const PlanInput& input, const PlannerOptions& options) {
  constexpr int64_t kLeastLength = 16;
  const auto halved = [&](int64_t begin, int64_t least, void (*set)(PlanInput&, int64_t)) {
    return halved_to_fit(input, options, begin, least, set);
  };
  const model::BatchShape& shape = input.shape;
  if (shape.is_cached()) {
    const int64_t rows = halved(shape.cache_rows, 1,
                                [](PlanInput& to, int64_t count) { to.shape.cache_rows = count; });
    if (rows > 0) return {.micro_batch = rows};
    return {.sequence_length =
                halved(shape.cache_positions, kLeastLength,
                       [](PlanInput& to, int64_t count) { to.shape.cache_positions = count; })};
  }
  const int64_t rows =
      halved(shape.rows, 1, [](PlanInput& to, int64_t count) { to.shape.rows = count; });
  if (rows > 0) return {.micro_batch = rows};
  const int64_t batches = halved(input.micro_batches, 1, [](PlanInput& to, int64_t count) {
    to.micro_batches = static_cast<int>(count);
    to.windows.count = std::gcd(to.windows.count, to.micro_batches);
  });
  if (batches > 0) return {.accumulate = batches};
  // Of context ranks, each has two pieces of it.
  const int64_t ranks = shape.context.ranks;
  const auto set_length = [](PlanInput& to, int64_t count) {
    to.shape.length = to.shape.context.ranks == 1 ? count : round_up(count, 2);
  };
  const int64_t length = halved(shape.length, kLeastLength, set_length);
  return {.sequence_length = (ranks == 1 ? length : round_up(length, 2)) * ranks};
}

// The least space on NVMe, to a hundredth, with which the budgets of memory suffice. They do with
// `enough`.
int64_t least_nvme_bytes(PlanInput input, const PlannerOptions& options, int64_t enough) {
  for (int64_t little = input.nvme_budget; enough - little > enough / 100;) {
    input.nvme_budget = little + (enough - little) / 2;
    (fits(input, options) ? enough : little) = input.nvme_budget;
  }
  return enough;
}

// Of each arena, what is needed. Drives that are too small are short of space, not of the memory
// that would hold what they cannot.
std::vector<Shortage> shortages_of(const PlanInput& input, const PlannerOptions& options) {
  PlanInput roomy = input;
  if (input.nvme_budget > 0) roomy.nvme_budget = kNoLimit;
  const PlacementSearch search(roomy);
  const auto bytes = search.bytes(forced_placement(roomy, options, search));
  const std::pair<Arena, int64_t> budgets[] = {{Arena::kDevice, input.device_budget},
                                               {Arena::kHost, input.host_budget},
                                               {Arena::kNvme, input.nvme_budget}};
  std::vector<Shortage> shortages;
  for (const auto& [arena, budget] : budgets) {
    const int64_t need = bytes[static_cast<size_t>(arena)];
    if (need > budget) shortages.push_back({arena, need, budget});
  }
  if (shortages.size() == 1 && shortages.front().arena == Arena::kNvme) {
    shortages.front().need_bytes = least_nvme_bytes(input, options, shortages.front().need_bytes);
  }
  return shortages;
}

[[noreturn]] void refuse(const PlanInput& input, const PlannerOptions& options) {
  PlanInput larger_device = input;
  larger_device.device_budget = kNoLimit;
  const Remedies remedies = {
      .nvme = input.nvme_budget == 0 && options.may_use_nvme,
      .offload = input.nvme_budget == 0 && options.avoids_nvme,
      .device_memory = input.device.discrete && input.device_budget != kNoLimit &&
                       !options.device_is_whole && fits(larger_device, options),
      .device_is_whole = options.device_is_whole};
  throw DoesNotFit(shortages_of(input, options), cheapest_change(input, options), remedies);
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
  if (!search.fits(base)) refuse(input, options);
  Placement summing = base;  // which saves the link the sums
  summing.sums_on_device = true;
  search.size_rings(summing, 0);
  return search.fits(summing) ? summing : base;
}

bool fits(const PlanInput& input, const PlannerOptions& options) {
  const PlacementSearch search(input);
  return search.fits(forced_placement(input, options, search));
}

Placement least_placement(const PlanInput& input, const PlannerOptions& options) {
  return base_placement(input, options, PlacementSearch(input));
}

}  // namespace strata::plan
