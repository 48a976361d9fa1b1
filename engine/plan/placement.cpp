// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/placement.h"

#include <algorithm>

#include "engine/base/units.h"

namespace strata::plan {

PlacementSearch::PlacementSearch(const PlanInput& input)
    : input_(input), ground_(ground_of(input)), shell_(empty_plan(input, ground_)) {
  for (int u = 0; u < static_cast<int>(input.spec->units.size()); ++u) {
    const std::vector<int>& unit = input.spec->units[u].segments;
    const auto inner = static_cast<int64_t>(unit.size()) - 1;
    int64_t bytes = inner * boundary_tensor_bytes(input);
    for (int s : unit) bytes += ground_.footprints[s].interior_bytes;
    keep_bytes_.push_back(bytes * kept_micro_batches(input, ground_, u));
  }
  for (int c = 0; c < static_cast<int>(shell_.layout.chunks.size()) && input.device.discrete; ++c) {
    largest_staging_ = std::max(largest_staging_, staging_bytes(shell_, c));
  }
  for (int k = 0; k < kResidencyKindCount; ++k) {
    items_[static_cast<size_t>(k)] = list_items(static_cast<ResidencyKind>(k));
  }
}

Placement PlacementSearch::smallest() const {
  Placement placement;
  const size_t segments = input_.spec->segments.size();
  placement.hi_in_host.assign(segments, 0);
  placement.hi_on_device.assign(segments, 0);
  placement.home_on_device.assign(segments, 0);
  placement.state_in_host.assign(shell_.layout.chunks.size(), 0);
  placement.grad_in_host.assign(segments, 0);
  placement.keep.assign(input_.spec->units.size(), 0);
  placement.checkpoint_in_host.assign(input_.spec->units.size(), 0);
  placement.activations_on_device = placement.sums_on_device = !input_.device.discrete;
  size_rings(placement, 0);
  return placement;
}

std::array<int64_t, kArenaCount> PlacementSearch::bytes(const Placement& placement) const {
  measure(input_, ground_, placement, shell_);
  return shell_.arenas.bytes;
}

bool PlacementSearch::fits(const Placement& placement) const {
  const auto used = bytes(placement);
  return used[0] <= input_.device_budget && used[1] <= input_.host_budget &&
         used[2] <= input_.nvme_budget;
}

int64_t PlacementSearch::room(const Placement& placement, Arena arena) const {
  const int64_t budget = arena == Arena::kDevice ? input_.device_budget : input_.host_budget;
  return budget == kNoLimit ? kNoLimit : budget - bytes(placement)[static_cast<size_t>(arena)];
}

// The most bytes that are live in a ring at once: those of all segments of a unit or use, and for
// the head also the matrix that it shares.
int64_t PlacementSearch::largest_live(const std::vector<int64_t>& segment_bytes) const {
  int64_t most = 0;
  for (const model::Unit& unit : input_.spec->units) {
    int64_t live = 0;
    for (int s : unit.segments) {
      live += segment_bytes[s];
      const int shared = input_.spec->segments[s].shares;
      if (shared >= 0) live += segment_bytes[shared];
    }
    most = std::max(most, live);
  }
  for (const model::ExternalUse& use : input_.spec->uses) {
    int64_t live = 0;
    for (const int s : use.segments) live += segment_bytes[s];
    most = std::max(most, live);
  }
  return most;
}

void PlacementSearch::size_rings(Placement& placement, int depth) const {
  const size_t count = input_.spec->segments.size();
  std::vector<int64_t> weights(count), gradients(count), device(count), device_gradients(count);
  const bool sharded = !input_.device.discrete && input_.mesh.weight_shards() > 1;
  for (size_t s = 0; s < count; ++s) {
    const int segment = static_cast<int>(s);
    const bool in_place = accumulates_in_place(input_, placement, segment);
    const bool tied = accumulates_apart(input_, placement, segment);
    if (has_home_on_device(input_, placement, segment)) {
      if (!in_place && !tied) device_gradients[s] = gradient_full_bytes(input_, segment);
      continue;
    }
    const int64_t host = input_.device.discrete ? hi_part_bytes(shell_, input_, segment)
                                                : hi_full_bytes(input_, segment);
    if (!placement.hi_in_host[s] || sharded) weights[s] = host;
    if (input_.device.discrete && !placement.hi_on_device[s])
      device[s] = hi_full_bytes(input_, segment);
    if (input_.device.discrete) {
      if (!tied) device_gradients[s] = gradient_full_bytes(input_, segment);
      const bool held = input_.update().waits && placement.grad_in_host[s];
      if (!held) gradients[s] = gradient_part_bytes(input_, segment);
    } else if (!in_place && !tied) {
      gradients[s] = gradient_full_bytes(input_, segment);
    }
  }
  // Room for one segment more than what is live, because slots are contiguous and the next one may
  // not fit at the end of the ring.
  const auto ring = [&](const std::vector<int64_t>& bytes, int ahead) {
    return largest_live(bytes) + (1 + ahead) * *std::max_element(bytes.begin(), bytes.end());
  };
  const auto total = [](const std::vector<int64_t>& bytes) {
    int64_t sum = 0;
    for (int64_t b : bytes) sum += b;
    return sum;
  };
  placement.weights_ring = std::min(ring(weights, depth), 2 * total(weights));
  placement.gradient_ring = std::min(ring(gradients, std::min(depth, 1)), 2 * total(gradients));
  placement.device_weights_ring = std::min(ring(device, depth), 2 * total(device));
  placement.device_gradient_ring =
      std::min(ring(device_gradients, std::min(depth, 1)), 2 * total(device_gradients));
  // Slots for what an op reads and writes, and one being spilled to NVMe; with prefetch, another
  // being fetched.
  int spilled = 0;
  for (int u = 0; u < static_cast<int>(input_.spec->units.size()); ++u) {
    spilled += spills_checkpoint(input_, placement, u);
  }
  placement.activation_ring = boundary_tensor_bytes(input_) *
                              std::min(3 + 2 * depth, (spilled + 1) * input_.micro_batches) *
                              (spilled > 0);
  const Streamed state = streamed(placement);
  placement.state_ring = std::min(state.largest * (1 + depth), state.total);
  const auto home = std::find(placement.home_on_device.begin(), placement.home_on_device.end(), 1);
  if (home != placement.home_on_device.end()) {
    placement.state_ring = std::max(placement.state_ring, largest_staging_);
  }
}

PlacementSearch::Streamed PlacementSearch::streamed(const Placement& placement) const {
  Streamed state;
  for (const ChunkRun& run : ground_.trainable) {
    const int segment = ground_.layout.chunks[run.first].segment;
    if (has_home_on_device(input_, placement, segment)) continue;
    const int resident = count_in(run, placement.state_in_host);
    const int64_t gradient = spills_gradient(input_, placement, segment)
                                 ? state_piece(shell_, run.first).count * kGradientWidth
                                 : 0;
    const int64_t own = state_bytes(shell_, run.first);
    state.largest = std::max(state.largest, gradient + (resident < run.count ? own : 0));
    state.total += run.count * gradient + (run.count - resident) * own;
  }
  return state;
}

// Device bytes of a segment's home, including pages for norm partials and alignment.
int64_t PlacementSearch::home_bytes(int segment) const {
  int64_t bytes = hi_full_bytes(input_, segment) + 2 * kPageBytes;
  if (input_.update().waits) bytes += gradient_part_bytes(input_, segment);
  for (int c = shell_.layout.first_chunk[segment]; c < shell_.layout.first_chunk[segment + 1];
       ++c) {
    if (shell_.layout.chunks[c].frozen) continue;
    bytes += round_up(state_bytes(shell_, c), kPageBytes);
  }
  return bytes;
}

std::vector<PlacementSearch::Item> PlacementSearch::list_items(ResidencyKind kind) const {
  std::vector<Item> list;
  const auto& segments = input_.spec->segments;
  for (size_t s = 0; s < segments.size(); ++s) {
    const int segment = static_cast<int>(s);
    if (kind == ResidencyKind::kGradients && input_.update().waits) {
      list.push_back({&Placement::grad_in_host, s, gradient_part_bytes(input_, segment), segment});
    } else if (kind == ResidencyKind::kWeights) {
      list.push_back({&Placement::hi_in_host, s, hi_part_bytes(shell_, input_, segment), segment});
    } else if (kind == ResidencyKind::kDeviceWeights && input_.device.discrete) {
      list.push_back({&Placement::hi_on_device, s, hi_full_bytes(input_, segment), segment});
    } else if (kind == ResidencyKind::kDeviceHome && input_.device.discrete &&
               segments[s].numel() > 0) {
      list.push_back({&Placement::home_on_device, s, home_bytes(segment)});
    }
  }
  for (size_t c = 0; c < shell_.layout.chunks.size() && kind == ResidencyKind::kState; ++c) {
    if (shell_.layout.chunks[c].frozen) continue;
    list.push_back({&Placement::state_in_host, c, state_bytes(shell_, static_cast<int>(c)),
                    shell_.layout.chunks[c].segment});
  }
  // Top units come first, because their backward comes first.
  for (size_t u = input_.spec->units.size(); u-- > 0 && kind == ResidencyKind::kCheckpoints;) {
    if (!has_checkpoint(input_, static_cast<int>(u)) || input_.inference) continue;
    list.push_back(
        {&Placement::checkpoint_in_host, u,
         boundary_tensor_bytes(input_) * kept_micro_batches(input_, ground_, static_cast<int>(u))});
  }
  for (size_t u = 0; u < input_.spec->units.size() && kind == ResidencyKind::kKeep; ++u) {
    if (keep_bytes_[u] > 0) list.push_back({&Placement::keep, u, keep_bytes_[u]});
  }
  return list;
}

Arena PlacementSearch::arena_of(ResidencyKind kind) const {
  const bool on_device =
      input_.device.discrete &&
      (kind == ResidencyKind::kDeviceHome || kind == ResidencyKind::kDeviceWeights ||
       kind == ResidencyKind::kKeep || kind == ResidencyKind::kDeviceActivations);
  return on_device ? Arena::kDevice : Arena::kHost;
}

Placement PlacementSearch::with_least_rings(Placement placement) const {
  size_rings(placement, 0);
  return placement;
}

// A ring that has room for everything that passes through it is no faster with more.
void PlacementSearch::cut_rings(Placement& placement) const {
  constexpr int kEverything = 1 << 20;
  Placement longest = placement;
  size_rings(longest, kEverything);
  for (int64_t Placement::*ring :
       {&Placement::weights_ring, &Placement::state_ring, &Placement::activation_ring}) {
    placement.*ring = std::min(placement.*ring, longest.*ring);
  }
}

// Tries top units first, because more gradients wait below them. Several units are tried together,
// and twice as many after each success. When a single unit does not fit, no similar unit below it
// fits either.
void PlacementSearch::keep_for_free(Placement& placement) const {
  const auto used = bytes(placement);
  std::vector<size_t> left;  // the next unit is the last element
  for (size_t u = 0; u < placement.keep.size(); ++u) {
    if (!placement.keep[u] && keep_bytes_[u] > 0) left.push_back(u);
  }
  for (size_t count = 1; !left.empty();) {
    const auto first = left.end() - static_cast<int64_t>(std::min(count, left.size()));
    const auto keep = [&](char kept) {
      for (auto u = first; u != left.end(); ++u) placement.keep[*u] = kept;
    };
    keep(1);
    if (bytes(placement) <= used) {
      left.erase(first, left.end());
      count *= 2;
      continue;
    }
    keep(0);
    if (first + 1 == left.end()) {
      const int64_t refused = keep_bytes_[left.back()];
      std::erase_if(left, [&](size_t u) { return keep_bytes_[u] == refused; });
    }
    count = 1;
  }
}

Spending PlacementSearch::spending_of(const Placement& placement) const {
  Spending spending;
  for (int k = 0; k < kResidencyKindCount; ++k) {
    for (const Item& item : items_[static_cast<size_t>(k)]) {
      if ((placement.*item.flags)[item.index] && !needless(placement, item)) {
        spending.resident[static_cast<size_t>(k)] += round_up(item.bytes, kPageBytes);
      }
    }
  }
  const Placement least = with_least_rings(placement);
  spending.state_ring = placement.state_ring - least.state_ring;
  spending.weights_ring = placement.weights_ring - least.weights_ring;
  spending.gradient_ring = placement.gradient_ring - least.gradient_ring;
  spending.device_weights_ring = placement.device_weights_ring - least.device_weights_ring;
  spending.device_gradient_ring = placement.device_gradient_ring - least.device_gradient_ring;
  spending.activation_ring = placement.activation_ring - least.activation_ring;
  spending.activations_on_device = placement.activations_on_device;
  return spending;
}

std::optional<Placement> PlacementSearch::spend(const Placement& base, const Spending& spending,
                                                bool may_keep) const {
  Placement placement = base;
  placement.activations_on_device = spending.activations_on_device;
  for (int k = 0; k < kResidencyKindCount; ++k) {
    int64_t left = spending.resident[static_cast<size_t>(k)];
    for (const Item& item : items_[static_cast<size_t>(k)]) {
      const int64_t bytes = round_up(item.bytes, kPageBytes);
      if (bytes > left || needless(placement, item)) continue;
      left -= bytes;
      (placement.*item.flags)[item.index] = 1;
    }
  }
  placement = with_least_rings(placement);
  placement.weights_ring += spending.weights_ring;
  placement.state_ring += spending.state_ring;
  placement.gradient_ring += spending.gradient_ring;
  placement.device_weights_ring += spending.device_weights_ring;
  placement.device_gradient_ring += spending.device_gradient_ring;
  placement.activation_ring += spending.activation_ring;
  cut_rings(placement);
  if (!fits(placement)) return {};
  if (may_keep) keep_for_free(placement);
  return placement;
}

void PlacementSearch::make_resident(Placement& placement, ResidencyKind kind, int depth,
                                    bool all_or_none) const {
  const Arena arena = arena_of(kind);
  if (kind == ResidencyKind::kDeviceActivations) {
    Placement trial = placement;
    trial.activations_on_device = true;
    if (fits(trial)) placement = trial;
    return;
  }
  // Tries to make everything of a kind resident first, because its ring then shrinks; otherwise as
  // much as there is room for.
  const std::vector<Item>& list = items_[static_cast<size_t>(kind)];
  if (kind == ResidencyKind::kDeviceHome && list.empty()) return;
  // The ring of optimizer state keeps its length, as far as there is state to stream.
  const auto resize = [&](Placement& changed) {
    const int64_t length = placement.state_ring;
    size_rings(changed, depth);
    changed.state_ring = std::max(changed.state_ring, std::min(length, streamed(changed).total));
  };
  Placement all = placement;
  for (const Item& item : list) (all.*item.flags)[item.index] = 1;
  resize(all);
  if (fits(all)) {
    placement = all;
    return;
  }
  if (all_or_none) return;
  int64_t left = room(placement, arena);
  Placement grown = placement;
  for (const Item& item : list) {
    const int64_t bytes = round_up(item.bytes, kPageBytes);
    if ((grown.*item.flags)[item.index] || bytes > left || needless(grown, item)) continue;
    (grown.*item.flags)[item.index] = 1;
    left -= bytes;
  }
  resize(grown);
  if (fits(grown)) placement = grown;
}

void PlacementSearch::make_resident_until(
    Placement& placement, ResidencyKind kind,
    const std::function<bool(const Placement&)>& enough) const {
  std::vector<Item> list;
  for (const Item& item : items_[static_cast<size_t>(kind)]) {
    const bool is_in_source = kind == ResidencyKind::kWeights && input_.frozen_in_source &&
                              input_.spec->segments[item.segment].trainable_numel == 0;
    if (!is_in_source) list.push_back(item);
  }
  const auto with = [&](size_t count) {
    Placement grown = placement;
    for (size_t i = 0; i < count; ++i) (grown.*list[i].flags)[list[i].index] = 1;
    size_rings(grown, 0);
    return grown;
  };
  size_t few = 0;  // are not enough
  size_t many = list.size();
  while (many - few > 1 && (many < list.size() || enough(with(many)))) {
    const size_t middle = few + (many - few) / 2;
    (enough(with(middle)) ? many : few) = middle;
  }
  placement = with(many);
}

void PlacementSearch::lengthen_state_ring(Placement& placement, double share) const {
  const int64_t left = room(placement, Arena::kHost);
  if (left == kNoLimit || left <= 0) return;
  const int64_t useful = streamed(placement).total;
  const int64_t wanted =
      placement.state_ring + static_cast<int64_t>(static_cast<double>(left) * share);
  placement.state_ring =
      std::max(placement.state_ring, std::min(wanted, useful) / kPageBytes * kPageBytes);
}

}  // namespace strata::plan
