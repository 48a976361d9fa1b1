// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <vector>

#include "engine/plan/ground.h"
#include "engine/plan/input.h"
#include "engine/plan/plan.h"

namespace strata::plan {

// Bytes of one element of a plane; kLo is 0 wide where the recipe has none.
inline constexpr int64_t kGradientWidth = 4;

// What a chunk's state is made of beside its weights, in the order in which it lies.
inline constexpr Plane kStatePlanes[] = {Plane::kLo, Plane::kExpAvg, Plane::kExpAvgSq};

// Slots of the control arena: the decision, and a sum and a flag for each part of a chunk.
inline constexpr int64_t kDecisionBytes = 128;
inline constexpr int64_t kNormBytes = 16;  // also of the sum over all stages

// A run of elements of a segment that this rank moves as one. `compact` counts elements of own
// parts before it; with one shard it equals `first`.
struct Piece {
  int64_t first = 0;
  int64_t count = 0;
  int64_t compact = 0;
  bool frozen = false;
};

// Own pieces of a segment's trainable (and frozen) elements, when `shards` ranks share it.
std::vector<Piece> pieces_of(const shard::Layout& layout, int segment, int shards, int rank,
                             bool with_frozen);

// The elements of a chunk that this rank updates.
Piece state_piece(const Plan& plan, int chunk);

// A plane of a segment in an arena: element e of piece p is at base + (compact ? p.compact :
// p.first) * width. base < 0: there is none.
struct Place {
  Arena arena = Arena::kHost;
  int64_t base = -1;
  bool compact = false;
  bool exists() const { return base >= 0; }
  int64_t address(const Piece& piece, int64_t width) const {
    return base + (compact ? piece.compact : piece.first) * width;
  }
};

// One chunk's lo, moments and, where it was spilled, gradient, one after the other; exp_avg_sq may
// lie apart.
struct StateSlot {
  Arena arena = Arena::kHost;
  int64_t base = -1;
  int64_t exp_avg_sq = -1;  // where it lies apart, else negative
  bool exists() const { return base >= 0; }
};

// Through which ranks exchange what lies on a device: host memory, in two halves; or, where the
// devices are peers, memory of the device, to which parts come that are summed. Each lane between
// ranks has one, and its ops pass larger values in pieces.
struct BounceBuffer {
  int64_t offset = -1;
  int64_t bytes = 0;
};
inline constexpr int64_t kMostBounceBytes = int64_t{16} << 20;
inline constexpr int64_t kMostPeerBytes = int64_t{64} << 20;

struct SegmentPlaces {
  Place host_hi;      // resident weights (own part)
  Place device_hi;    // resident on the device: a copy, or the segment's home
  bool home = false;  // weights, state and held gradient are on the device alone
  Place nvme_hi;      // of elements that are trained
  Place nvme_frozen;  // of frozen elements; unused where those come from their source
  Place nvme_gradient;
  Place held_gradient;  // final gradient until its update, in host memory or at home on the device
  Place accumulator;    // static place of the running sum, where it is not in a ring
  // The held gradient's room is empty from its update to the next backward: the updated exp_avg_sq
  // waits there for its spill, which need not hold back forward then.
  bool writes_behind = false;

  const Place& stored(const Piece& piece) const { return piece.frozen ? nvme_frozen : nvme_hi; }
};

// Values that the caller gives or gets: in host memory, and where the device's ops find them (on
// one tier the same place). Value `index` of a kind lies `index` strides behind the first.
struct Exchange {
  int64_t host = -1;
  int64_t device = -1;
  int64_t bytes = 0;  // of one value
  int64_t stride = 0;
  int count = 0;
};
inline constexpr int kExchangeCount =
    static_cast<int>(ValueKind::kLogits) - static_cast<int>(ValueKind::kTokens) + 1;

// Every static range of a plan and the ranges of its rings.
struct MemoryMap {
  std::vector<SegmentPlaces> segments;
  std::vector<StateSlot> state;       // by chunk: resident, in host memory or on the device
  std::vector<StateSlot> nvme_state;  // by chunk
  // Of outputs, [segment][micro-batch], in the compute arena; empty where the activation ring has
  // them. Micro-batches of windows that are not there at one time have the same places.
  std::vector<std::vector<int64_t>> activation;
  // The same in host memory, for a device; empty where not used.
  std::vector<std::vector<int64_t>> host_activation;
  // The same on NVMe; empty where not spilled.
  std::vector<std::vector<int64_t>> nvme_activation;
  // [segment][micro-batch]; one place for all segments of a residual stream
  std::vector<std::vector<int64_t>> activation_gradient;
  std::vector<std::vector<int64_t>> interior;      // [segment][micro-batch]
  std::vector<std::vector<int64_t>> operands;      // the same of delayed products, or empty
  std::vector<int64_t> norm_gradient;              // by segment with delayed products
  std::array<Exchange, kExchangeCount> exchanges;  // kTokens to kLogits
  std::vector<int64_t> cache;  // by segment, in the compute arena; -1 where none is
  // In the compute arena, where tensor ranks share rows: of an even and of an odd segment's output.
  std::array<int64_t, 2> rows = {-1, -1};
  int64_t row_gradient = -1;
  int64_t branch = -1;  // in the compute arena, where tensor ranks sum it
  int64_t scores = -1;  // in the compute arena, where tensor ranks share them
  // In the compute arena, where tensor ranks sum up norms of q and k: q, k and v or their
  // gradients, and the sums.
  int64_t projected = -1, norm_sums = -1;
  int64_t keys = -1;          // in the compute arena, where context ranks share them
  int64_t key_gradient = -1;  // the same
  int64_t sent = -1;          // in the compute arena, where context ranks swap heads
  int64_t received = -1;      // the same
  int64_t scratch = 0, scratch_bytes = 0;
  int64_t decision = 0;
  int64_t norm_sum = -1;                             // control arena, where there are stages
  std::vector<int64_t> norm;                         // by segment, control arena
  std::vector<int64_t> device_norm;                  // by segment, where its home is the device
  int64_t norm_scratch = 0, norm_scratch_bytes = 0;  // on the device, where a segment's home is
  int64_t weights_ring = 0, state_ring = 0, gradient_ring = 0, activation_ring = 0;
  int64_t device_weights_ring = 0, device_gradient_ring = 0;
  std::array<BounceBuffer, kLaneCount> bounce;  // by lane
};

inline const Exchange& exchange_of(const MemoryMap& map, ValueKind kind) {
  return map.exchanges[static_cast<size_t>(kind) - static_cast<size_t>(ValueKind::kTokens)];
}

int64_t boundary_tensor_bytes(const PlanInput& input);
// The most bytes that a rank's part of model::row_gradient_bytes has in any segment.
int64_t most_row_gradient_bytes(const PlanInput& input);
// The most bytes that a context rank sends another where they swap heads.
int64_t swapped_bytes(const PlanInput& input);
int64_t state_bytes(const Plan& plan, int chunk);
// Where a plane of a chunk's state starts in a slot of it.
int64_t plane_address(const Plan& plan, int chunk, const StateSlot& slot, Plane plane);
int64_t hi_part_bytes(const Plan& plan, const PlanInput& input, int segment);
int64_t hi_full_bytes(const PlanInput& input, int segment);
// Of the bounce buffer of a lane between ranks; 0 where it has no use for one.
int64_t bounce_bytes(const PlanInput& input, Lane lane);
int64_t gradient_full_bytes(const PlanInput& input, int segment);
int64_t gradient_part_bytes(const PlanInput& input, int segment);

// True for blocks, whose inputs wait for a backward; the second, where they wait on NVMe. What a
// stage receives waits where it is computed with.
bool has_checkpoint(const PlanInput& input, int unit);
bool spills_checkpoint(const PlanInput& input, const Placement& placement, int unit);

// True where the device is the only place of a segment's weights, state and waiting gradient.
bool has_home_on_device(const PlanInput& input, const Placement& placement, int segment);

// What loads and saves a chunk whose home is the device: a slot in host memory with its weights and
// its state.
int64_t staging_bytes(const Plan& plan, int chunk);

// The elements of a chunk whose weights this rank stores.
Piece weights_piece(const Plan& plan, int chunk);

// True where the final gradient of a segment waits for its update on NVMe.
bool spills_gradient(const PlanInput& input, const Placement& placement, int segment);

// True where the running sum of a segment's gradient is the held gradient itself.
bool accumulates_in_place(const PlanInput& input, const Placement& placement, int segment);

bool is_external(const PlanInput& input, int segment);
bool is_shared(const PlanInput& input, int segment);  // by another segment

// Of the section that a unit is in.
const WindowsAtOnce& windows_at_once(const PlanInput& input, const StageSchedule& schedule,
                                     int unit);

// How many micro-batches of a step a unit keeps at one time for their backward.
int kept_micro_batches(const PlanInput& input, const Ground& ground, int unit);

// True where the embedding's gradients of all micro-batches wait for the end of the step, because
// the head adds to the same matrix first, as it does where they pass the model in one window.
bool embeds_at_end(const PlanInput& input);

// True where a running sum has a place of its own for the whole step: other ops come between its
// contributions.
bool accumulates_apart(const PlanInput& input, const Placement& placement, int segment);

// Lays everything out; fills plan.arenas (bytes and ledger lines; budgets are left alone).
MemoryMap lay_out(const PlanInput& input, const Ground& ground, const Placement& placement,
                  Plan& plan);

// plan.arenas.bytes alone, which takes no time for each chunk.
void measure(const PlanInput& input, const Ground& ground, const Placement& placement, Plan& plan);

}  // namespace strata::plan
