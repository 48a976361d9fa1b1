// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <optional>

#include "engine/plan/memory_map.h"
#include "engine/plan/planner.h"

namespace strata::plan {

// The kinds of things that may stay in memory. Their order is that of Spending::resident.
enum class ResidencyKind : uint8_t {
  kDeviceHome,  // first, because it makes other kinds unnecessary
  kGradients,
  kWeights,
  kState,
  kKeep,
  kDeviceWeights,
  kDeviceActivations,
  kCheckpoints
};
inline constexpr int kResidencyKindCount = 8;

// How memory is spent: resident bytes of each kind, and bytes of rings beyond their least size.
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

// Grows a placement within the budgets. Bottom layers come first, because the next step needs them
// first and their gradients come last.
class PlacementSearch {
 public:
  explicit PlacementSearch(const PlanInput& input);

  Placement smallest() const;
  std::array<int64_t, kArenaCount> bytes(const Placement& placement) const;
  bool fits(const Placement& placement) const;

  // Makes rings long enough for a prefetch depth of `depth` segments and chunks beyond what must be
  // live.
  void size_rings(Placement& placement, int depth) const;

  // Makes as much of one kind resident as there is room for; with `all_or_none`, all of it or none.
  void make_resident(Placement& placement, ResidencyKind kind, int depth,
                     bool all_or_none = false) const;

  // Makes as few things of one kind resident as are `enough`, or all, within any budget. `enough`
  // stays true where more is resident.
  void make_resident_until(Placement& placement, ResidencyKind kind,
                           const std::function<bool(const Placement&)>& enough) const;

  // Keeps the activations of every unit for which that costs no memory, top units first.
  void keep_for_free(Placement& placement) const;

  // spending_of() returns how a placement spends memory. spend() returns `base` with that spending:
  // as much of each kind as its bytes allow, bottom layers first, and, if `may_keep`, activations
  // that can be kept for free; nullopt when that exceeds a budget.
  Spending spending_of(const Placement& placement) const;
  std::optional<Placement> spend(const Placement& base, const Spending& spending,
                                 bool may_keep) const;

  Arena arena_of(ResidencyKind kind) const;
  int64_t room(const Placement& placement, Arena arena) const;

  const Ground& ground() const { return ground_; }
  bool is_discrete() const { return input_.device.discrete; }

  // Bytes of optimizer state that updates stream through the ring: of the largest chunk, and of all
  // chunks.
  struct Streamed {
    int64_t largest = 0;
    int64_t total = 0;
  };
  Streamed streamed(const Placement& placement) const;

  // Gives `share` of the unused host memory to the ring of optimizer state.
  void lengthen_state_ring(Placement& placement, double share) const;

 private:
  struct Item {
    std::vector<char> Placement::*flags;
    size_t index;
    int64_t bytes;
    int segment = -1;  // the item is unnecessary when this segment's home is the device
  };
  std::vector<Item> list_items(ResidencyKind kind) const;
  int64_t home_bytes(int segment) const;
  bool needless(const Placement& placement, const Item& item) const {
    return item.segment >= 0 && has_home_on_device(input_, placement, item.segment);
  }
  int64_t largest_live(const std::vector<int64_t>& segment_bytes) const;
  Placement with_least_rings(Placement placement) const;
  void cut_rings(Placement& placement) const;

  const PlanInput& input_;
  const Ground ground_;
  std::vector<int64_t> keep_bytes_;  // by unit: bytes for keeping its interiors
  int64_t largest_staging_ = 0;
  std::array<std::vector<Item>, kResidencyKindCount> items_;
  // Layout, recipe and mesh, for computing sizes. Its arenas are scratch for bytes().
  mutable Plan shell_;
};

}  // namespace strata::plan
