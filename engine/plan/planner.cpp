// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/planner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/check.h"
#include "engine/plan/builder.h"
#include "engine/plan/placement.h"
#include "engine/plan/placement_base.h"
#include "engine/plan/placement_climb.h"
#include "engine/plan/placement_coarse.h"

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
      {"first to gradients, then to weights, optimizer state, activations",
       1,
       {kDeviceHome, kCheckpoints, kGradients, kWeights, kState, kDeviceWeights, kKeep}},
      {"first to gradients, then to weights, optimizer state", 2, kUsual},
      {"first to gradients, then half of it to reading optimizer state ahead", 2, kRing, 3, 0.5},
      {"first to gradients, then to reading optimizer state ahead",
       2,
       {kCheckpoints, kGradients, kDeviceWeights, kCheckpoints},
       2,
       1.0},
      {"first to reading optimizer state ahead, then to inputs of blocks",
       2,
       {kDeviceHome, kCheckpoints, kCheckpoints},
       2,
       1.0},
      {"first to weights, then to gradients, optimizer state",
       2,
       {kCheckpoints, kWeights, kGradients, kState, kDeviceWeights}},
      {"first to reading far ahead, then to gradients, weights, optimizer state", 4, kRing, 2, 0.5},
      {"first to activations, then to gradients, weights, optimizer state",
       2,
       {kCheckpoints, kKeep, kDeviceHome, kGradients, kWeights, kState, kDeviceWeights}},
      {"first to gradients, then to weights, optimizer state, inputs of blocks",
       2,
       {kDeviceHome, kGradients, kWeights, kState, kDeviceWeights, kCheckpoints}},
      {"first to gradients, then to weights, optimizer state, with short buffers", 1, kUsual},
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

const std::string kClimbed = "; small changes made it faster";

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

// Adds what the policies make of `base`, with a prefetch depth instead of their own if it is not 0.
void add_candidates(const PlacementSearch& search, const PlannerOptions& options,
                    const Placement& base, int depth, std::vector<Candidate>& list) {
  for (const Policy& policy : policies()) {
    Placement placement =
        follow(search, policy, depth > 0 ? depth : policy.depth, options.may_keep, base);
    const bool known = std::any_of(list.begin(), list.end(), [&](const Candidate& other) {
      return same(other.placement, placement);
    });
    if (!known) list.push_back({policy.name, std::move(placement)});
  }
}

// Candidates beyond those of candidates(), which `list` has, for when there is time: what other
// values of options that the planner may choose would lead to.
void add_more(const PlanInput& input, const PlannerOptions& options, const PlacementSearch& search,
              std::vector<Candidate>& list) {
  PlannerOptions keeping = options;
  keeping.must_keep = true;
  if (options.may_keep && !options.must_keep) {
    const Placement kept = forced_placement(input, keeping, search);
    if (search.fits(kept)) add_candidates(search, options, kept, options.prefetch_depth, list);
  }
  if (options.prefetch_depth > 0) return;
  const Placement base = base_placement(input, options, search);
  for (const int depth : {1, 4, 2}) add_candidates(search, options, base, depth, list);
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
  const auto try_all = [&](size_t from, size_t to) {
    for (size_t i = from; i < std::min(to, candidates.size()); ++i) {
      tried.push_back({candidates[i], predict(candidates[i].placement)});
    }
  };
  const size_t first = candidates.size();
  try_all(0, first);
  constexpr int kFew = 8;  // where plans take long, those of the policies have to do
  if (tries >= kFew) add_more(input, options, search, candidates);
  try_all(first, first + static_cast<size_t>(tries));
  count = static_cast<int>(tried.size());
  std::stable_sort(tried.begin(), tried.end(), is_faster);
  const Placement base = base_placement(input, options, search);
  for (size_t i = 0, starts = std::min(kStarts, tried.size()); i < starts; ++i) {
    const Tried start = tried[i];
    const Climb climbed = climb(search, base, start.candidate.placement, start.cost,
                                options.may_keep, tries, predict);
    count += climbed.tried;
    if (climbed.cost.predicted_s >= start.cost.predicted_s) continue;
    tried.push_back({{start.candidate.name + kClimbed, climbed.placement}, climbed.cost});
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

std::vector<Candidate> candidates(const PlanInput& input, const PlannerOptions& options) {
  const PlacementSearch search(input);
  const Placement base = base_placement(input, options, search);
  std::vector<Candidate> list;
  add_candidates(search, options, base, options.prefetch_depth, list);
  return list;
}

PlannedRun rough_plan(const PlanInput& input, const PlannerOptions& options) {
  const PlacementSearch search(input);
  const int joined = joined_chunks(search.ground());
  PlannedRun best;
  best.cost.predicted_s = INFINITY;
  std::vector<Candidate> list = candidates(input, options);
  for (Candidate& one : list) {
    const CoarsePlacement coarse =
        coarsen(search.ground(), one.placement, search.streamed(one.placement).largest, joined);
    Plan plan = build_program(input, coarse, repeated(input));
    const Cost cost = cost_of(plan, input, options);
    if (cost.predicted_s >= best.cost.predicted_s) continue;
    best = {std::move(plan), std::move(one.placement), std::move(one.name), cost, 0};
  }
  best.candidates = static_cast<int>(list.size());
  return best;
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
