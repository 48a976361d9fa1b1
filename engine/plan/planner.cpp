// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/planner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/check.h"
#include "engine/plan/builder.h"
#include "engine/plan/placement.h"
#include "engine/plan/placement_climb.h"
#include "engine/plan/placement_coarse.h"
#include "engine/plan/refusal.h"

namespace strata::plan {
namespace {

// An order in which memory is spent on kinds. kDeviceHome makes a discrete device the home of as
// much state as fits. Before the entries from `ring_at` on, `ring_share` of the unused memory goes
// to prefetched state.
struct Policy {
  const char* name;
  int depth;
  std::vector<ResidencyKind> steps;
  size_t ring_at = 9;
  double ring_share = 0;
};

const std::vector<Policy>& policies() {
  using enum ResidencyKind;
  static const std::vector<ResidencyKind> kUsual = {kCheckpoints, kGradients, kWeights, kState,
                                                    kDeviceWeights};
  static const std::vector<ResidencyKind> kRing = {
      kDeviceHome, kCheckpoints, kGradients, kWeights, kState, kDeviceWeights, kCheckpoints};
  static const std::vector<Policy> kPolicies = {
      {"gradients first, then weights, optimizer state, activations",
       1,
       {kDeviceHome, kCheckpoints, kGradients, kWeights, kState, kDeviceWeights, kKeep}},
      {"gradients first, then weights, optimizer state", 2, kUsual},
      {"gradients first, half of the rest is for reading optimizer state ahead", 2, kRing, 3, 0.5},
      {"gradients first, the rest is for reading optimizer state ahead",
       2,
       {kCheckpoints, kGradients, kDeviceWeights, kCheckpoints},
       2,
       1.0},
      {"reading optimizer state ahead first, then inputs of blocks",
       2,
       {kDeviceHome, kCheckpoints, kCheckpoints},
       2,
       1.0},
      {"weights first, then gradients, optimizer state",
       2,
       {kCheckpoints, kWeights, kGradients, kState, kDeviceWeights}},
      {"reading far ahead first, then gradients, weights, optimizer state", 4, kRing, 2, 0.5},
      {"activations first, then gradients, weights, optimizer state",
       2,
       {kCheckpoints, kKeep, kDeviceHome, kGradients, kWeights, kState, kDeviceWeights}},
      {"gradients first, then weights, optimizer state, inputs of blocks",
       2,
       {kDeviceHome, kGradients, kWeights, kState, kDeviceWeights, kCheckpoints}},
      {"gradients first, then weights, optimizer state, with short buffers", 1, kUsual},
  };
  return kPolicies;
}

Placement follow(const PlacementSearch& search, const Policy& policy, int depth, bool may_keep,
                 Placement placement) {
  Placement longer = placement;
  search.size_rings(longer, depth);
  if (search.fits(longer)) placement = longer;
  search.make_resident(placement, ResidencyKind::kDeviceActivations, depth);
  for (size_t i = 0; i < policy.steps.size(); ++i) {
    const ResidencyKind kind = policy.steps[i];
    if (i == policy.ring_at) search.lengthen_state_ring(placement, policy.ring_share);
    if (kind == ResidencyKind::kKeep && !may_keep) continue;
    // Some checkpoints would leave nothing to the ring; all of them make their traffic go away.
    const bool all_or_none = kind == ResidencyKind::kCheckpoints && i < policy.ring_at &&
                             policy.ring_at < policy.steps.size();
    search.make_resident(placement, kind, depth, all_or_none);
  }
  if (may_keep) search.keep_for_free(placement);
  return placement;
}

bool same(const Placement& a, const Placement& b) {
  return a.hi_in_host == b.hi_in_host && a.hi_on_device == b.hi_on_device &&
         a.home_on_device == b.home_on_device && a.state_in_host == b.state_in_host &&
         a.grad_in_host == b.grad_in_host && a.keep == b.keep &&
         a.checkpoint_in_host == b.checkpoint_in_host &&
         a.activations_on_device == b.activations_on_device && a.weights_ring == b.weights_ring &&
         a.state_ring == b.state_ring && a.gradient_ring == b.gradient_ring &&
         a.activation_ring == b.activation_ring;
}

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

// The placement with only those things resident that the options or a missing drive require; it may
// not fit.
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
  move_to_device(input, search, base);
  return base;
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
                         const std::array<int64_t, kArenaCount>& bytes) {
  const std::pair<Arena, int64_t> budgets[] = {{Arena::kDevice, input.device_budget},
                                               {Arena::kHost, input.host_budget},
                                               {Arena::kNvme, input.nvme_budget}};
  std::vector<Shortage> shortages;
  for (const auto& [arena, budget] : budgets) {
    const int64_t need = bytes[static_cast<size_t>(arena)];
    if (need > budget) shortages.push_back({arena, need, budget});
  }
  PlanInput larger_device = input;
  larger_device.device_budget = kNoLimit;
  const Remedies remedies = {.nvme = input.nvme_budget == 0 && options.may_use_nvme,
                             .device_memory = input.device.discrete &&
                                              input.device_budget != kNoLimit &&
                                              fits(larger_device, options)};
  throw DoesNotFit(std::move(shortages), cheapest_change(input, options), remedies);
}

Placement base_placement(const PlanInput& input, const PlannerOptions& options,
                         const PlacementSearch& search) {
  Placement base = forced_placement(input, options, search);
  if (!search.fits(base)) refuse(input, options, search.bytes(base));
  return base;
}

// How many chunks are joined in the plans that are compared, so that these have about the same
// number of ops for every large model. Chunks of small models are not joined.
int joined_chunks(const Ground& ground) {
  constexpr size_t kChunks = 2000;
  return static_cast<int>((ground.layout.chunks.size() + kChunks - 1) / kChunks);
}

// How many of the best plans with joined chunks are compared again without joining: as many as take
// about a second.
size_t finalists(const Ground& ground) {
  constexpr size_t kChunks = 100000;
  return std::clamp<size_t>(kChunks / ground.layout.chunks.size(), 1, 5);
}

// How many plans are compared: as many as take about a second.
int tries_for(const Program& program) {
  constexpr size_t kOps = 60000;
  return static_cast<int>(std::min<size_t>(kOps / std::max<size_t>(program.ops.size(), 1), 100));
}

struct Tried {
  Candidate candidate;
  Cost cost;
};

bool is_faster(const Tried& a, const Tried& b) {
  return a.cost.predicted_s < b.cost.predicted_s;
}

Cost cost_of(const Plan& plan, const PlanInput& input, const PlannerOptions& options) {
  Cost cost = {.predicted_s = options.predict(plan)};
  for (const Op& op : plan.program(repeated(input)).ops) {
    if (op.lane == Lane::kWrite) cost.written_bytes += op.bytes;
  }
  return cost;
}

// Puts the best one first.
void put_best_first(std::vector<Tried>& tried) {
  const auto fastest = std::min_element(tried.begin(), tried.end(), is_faster);
  std::iter_swap(tried.begin(), fastest);
  auto best = tried.begin();
  for (auto each = tried.begin() + 1; each != tried.end(); ++each) {
    // Each is compared with the fastest too, so that small losses do not add up.
    if (is_better(each->cost, tried.front().cost) && is_better(each->cost, best->cost)) best = each;
  }
  std::iter_swap(tried.begin(), best);
}

// Predicts all candidates, and improves the best few by small moves of memory, because the best
// candidate does not always lead to the best result. With joined chunks costs are only about right.
std::vector<Tried> compare(const PlanInput& input, const PlannerOptions& options,
                           const PlacementSearch& search, std::vector<Candidate> candidates,
                           int joined, int& count) {
  constexpr size_t kStarts = 4;
  std::vector<Tried> tried;
  int tries = 0;
  const auto predict = [&](const Placement& placement) {
    const CoarsePlacement coarse =
        coarsen(search.ground(), placement, search.streamed(placement).largest, joined);
    const Plan plan = build_program(input, coarse, repeated(input));
    tries = tries_for(plan.program(repeated(input)));
    return cost_of(plan, input, options);
  };
  for (Candidate& candidate : candidates) {
    const Cost cost = predict(candidate.placement);
    tried.push_back({std::move(candidate), cost});
  }
  count = static_cast<int>(tried.size());
  std::stable_sort(tried.begin(), tried.end(), is_faster);
  const Placement base = base_placement(input, options, search);
  for (size_t i = 0, starts = std::min(kStarts, tried.size()); i < starts; ++i) {
    const Tried start = tried[i];
    const Climb climbed = climb(search, base, start.candidate.placement, start.cost,
                                options.may_keep, tries, predict);
    count += climbed.tried;
    if (climbed.cost.predicted_s >= start.cost.predicted_s) continue;
    tried.push_back({{start.candidate.name + "; then improved by small changes", climbed.placement},
                     climbed.cost});
  }
  std::stable_sort(tried.begin(), tried.end(), is_faster);
  return tried;
}

Tried fastest(const PlanInput& input, const PlannerOptions& options,
              std::vector<Candidate> candidates, int& count) {
  const PlacementSearch search(input);
  const int joined = joined_chunks(search.ground());
  std::vector<Tried> tried = compare(input, options, search, std::move(candidates), joined, count);
  if (joined > 1) tried.resize(std::min(tried.size(), finalists(search.ground())));
  if (tried.size() == 1) return tried.front();
  for (size_t i = 0; joined > 1 && i < tried.size(); ++i) {
    const Placement& placement = tried[i].candidate.placement;
    tried[i].cost =
        cost_of(build_program(input, search.ground(), placement, repeated(input)), input, options);
  }
  put_best_first(tried);
  return tried.front();
}

}  // namespace

ProgramName repeated(const PlanInput& input) {
  if (!input.inference) return ProgramName::kStep;
  return input.shape.is_cached() ? ProgramName::kGenerate : ProgramName::kEval;
}

bool is_better(const Cost& a, const Cost& b) {
  constexpr double kSame = 0.002;  // less of a step is within the prediction's error
  const double difference_s = a.predicted_s - b.predicted_s;
  const bool same = std::abs(difference_s) <= kSame * std::min(a.predicted_s, b.predicted_s);
  if (same && a.written_bytes != b.written_bytes) return a.written_bytes < b.written_bytes;
  return difference_s < 0;
}

Placement smallest_placement(const PlanInput& input) {
  return PlacementSearch(input).smallest();
}

std::array<int64_t, kArenaCount> bytes_of(const PlanInput& input, const Placement& placement) {
  return PlacementSearch(input).bytes(placement);
}

bool fits(const PlanInput& input, const PlannerOptions& options) {
  const PlacementSearch search(input);
  return search.fits(forced_placement(input, options, search));
}

Placement least_placement(const PlanInput& input, const PlannerOptions& options) {
  return base_placement(input, options, PlacementSearch(input));
}

std::vector<Candidate> candidates(const PlanInput& input, const PlannerOptions& options) {
  const PlacementSearch search(input);
  const Placement base = base_placement(input, options, search);
  std::vector<Candidate> list;
  for (const Policy& policy : policies()) {
    const int depth = options.prefetch_depth > 0 ? options.prefetch_depth : policy.depth;
    Placement placement = follow(search, policy, depth, options.may_keep, base);
    const bool known = std::any_of(list.begin(), list.end(), [&](const Candidate& other) {
      return same(other.placement, placement);
    });
    if (!known) list.push_back({policy.name, std::move(placement)});
  }
  return list;
}

PlannedRun make_plan(const PlanInput& input, const PlannerOptions& options) {
  std::vector<Candidate> list = candidates(input, options);
  STRATA_CHECK(!list.empty());
  PlannedRun run;
  run.candidates = 1;
  Tried best = {list.front(), {}};
  if (options.predict) best = fastest(input, options, std::move(list), run.candidates);
  run.plan = build_plan(input, best.candidate.placement);
  run.placement = std::move(best.candidate.placement);
  run.name = std::move(best.candidate.name);
  if (options.predict) run.cost = cost_of(run.plan, input, options);
  return run;
}

}  // namespace strata::plan
