// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/plan/slot_ring.h"
#include "engine/plan/weights_path.h"

namespace strata::plan {

// Updates chunks: brings their state and gradients to where that happens, and takes the state back.
class UpdateSchedule : BuilderPiece {
 public:
  UpdateSchedule(Building& building, WeightsPath& weights);

  // Every trainable chunk of a segment whose own weights lie at `weights`.
  void apply(int segment, const Place& weights, const Update& update);
  // What waits in gradients' rooms goes to NVMe, in the order in which backward wants the rooms.
  void spill_behind();

  // The ring slot of what an update of this chunk fetches: its state, its gradient, both, or
  // neither (then -1).
  int64_t take_state(int chunk, const Update& update);
  void fetch_state(int chunk, int64_t slot, Generation generation);
  void spill_state(int chunk, const StateSlot& from, const Update& update, StatePart part);
  SlotRing& ring() { return ring_; }

 private:
  void fetch_gradient(int chunk, int64_t slot, const Update& update);
  void optimize(int chunk, const Place& weights, int64_t slot, const Update& update);
  bool writes_behind(int chunk) const;
  StateSlot updated_state(int chunk, int64_t slot) const;

  WeightsPath& weights_;
  SlotRing ring_;
};

}  // namespace strata::plan
