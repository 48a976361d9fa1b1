// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>

#include "engine/plan/memory_map.h"
#include "engine/plan/planner.h"

namespace strata::plan {

// The kinds of things that may stay in memory. Their order is that of Spending::resident.
enum class ResidencyKind : uint8_t {
  kDeviceHome,  // listed first: it makes others needless
  kGradients,
  kWeights,
  kState,
  kKeep,
  kDeviceWeights,
  kDeviceActivations,
  kCheckpoints
};
inline constexpr int kResidencyKindCount = 8;

// What memory is spent on: resident bytes of each kind, and bytes of rings beyond the least.
struct Spending {
  std::array<int64_t, kResidencyKindCount> resident = {};
  int64_t state_ring = 0;
  int64_t weights_ring = 0;
  int64_t gradient_ring = 0;
  int64_t device_weights_ring = 0;
  int64_t device_gradient_ring = 0;
  int64_t activation_ring = 0;
  bool activations_on_device = true;
};

// Grows a placement within the budgets, bottom layers first: they are needed first in the next
// step, and their gradients come last.
class PlacementSearch {
 public:
  explicit PlacementSearch(const PlanInput& input);

  Placement smallest() const;
  std::array<int64_t, kArenaCount> bytes(const Placement& placement) const;
  bool fits(const Placement& placement) const;

  // Rings long enough for `depth` segments and chunks ahead of what must be live.
  void size_rings(Placement& placement, int depth) const;

  // Makes as much of one thing resident as the room that is left allows.
  void make_resident(Placement& placement, ResidencyKind kind, int depth) const;

  // Keeps the activations of every unit for which that costs no memory, top units first.
  void keep_for_free(Placement& placement) const;

  // What a placement spends, and `base` with so much spent on it: of each kind as much as the bytes
  // allow, bottom layers first (and, where it may, what it can keep for free). Nothing when that is
  // over a budget.
  Spending spending_of(const Placement& placement) const;
  std::optional<Placement> spend(const Placement& base, const Spending& spending,
                                 bool may_keep) const;

  Arena arena_of(ResidencyKind kind) const;
  int64_t room(const Placement& placement, Arena arena) const;

  const Ground& ground() const { return ground_; }
  bool is_discrete() const { return input_.device.discrete; }

  // What updates bring through the ring of optimizer state: the most of one chunk, and all.
  struct Streamed {
    int64_t largest = 0;
    int64_t total = 0;
  };
  Streamed streamed(const Placement& placement) const;

  // Gives `share` of the host room that is left to the ring of optimizer state.
  void lengthen_state_ring(Placement& placement, double share) const;

 private:
  struct Item {
    std::vector<char> Placement::*flags;
    size_t index;
    int64_t bytes;
    int segment = -1;  // whose home on the device makes it needless
  };
  std::vector<Item> list_items(ResidencyKind kind) const;
  int64_t home_bytes(int segment) const;
  bool needless(const Placement& placement, const Item& item) const {
    return item.segment >= 0 && has_home_on_device(input_, placement, item.segment);
  }
  int64_t largest_live(const std::vector<int64_t>& segment_bytes) const;
  Placement with_least_rings(Placement placement) const;

  const PlanInput& input_;
  const Ground ground_;
  std::vector<int64_t> keep_bytes_;  // by unit: what keeping its interiors takes
  int64_t largest_staging_ = 0;
  std::array<std::vector<Item>, kResidencyKindCount> items_;
  // Layout, recipe and mesh: what sizes are computed from. Its arenas are scratch of bytes().
  mutable Plan shell_;
};

}  // namespace strata::plan
