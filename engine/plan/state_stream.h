// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/plan/update_schedule.h"

namespace strata::plan {

// State on its way in and out, a chunk at a time through the slots that an update would use. What
// the device is the home of passes through a slot of host memory.
class StateStream : BuilderPiece {
 public:
  StateStream(Building& building, WeightsPath& weights, UpdateSchedule& updates)
      : BuilderPiece(building), weights_(weights), updates_(updates) {}

  void load(int chunk, const Place& weights, const Update& stored);
  void save(int chunk, const Place& weights);
  void load_home(int segment);
  void save_home(int chunk);

 private:
  void save_from(int chunk, int64_t weights, const StateSlot& state);
  StateSlot staged_state(const Piece& weights, int64_t slot) const;
  void move_chunk(OpKind kind, int chunk, const Piece& weights, int64_t slot);

  WeightsPath& weights_;
  UpdateSchedule& updates_;
};

}  // namespace strata::plan
