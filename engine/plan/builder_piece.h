// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/plan/emitter.h"
#include "engine/plan/input.h"
#include "engine/plan/memory_map.h"

// What the pieces of the builder share. Each emits the ops of one subject:
//
//   exchange_path.h    what the caller gives and gets
//   weights_path.h     brings weights to where ops read them
//   activation_path.h  brings and keeps the inputs of segments
//   update_schedule.h  updates chunks, and moves their state for it
//   gradient_path.h    sums, reduces and keeps gradients, and decides on an update
//   state_stream.h     loads and saves state
//   pass_order.h       forward and backward: which of the above comes when
namespace strata::plan {

struct Building {
  Building(const PlanInput& input, const Ground& ground, const Placement& placement);

  const PlanInput& input;
  const Placement& placement;
  const Ground& ground;
  std::vector<int> contributions;         // by segment: what its whole gradient is summed from
  std::vector<std::vector<int>> readers;  // by segment: those that read its output, ascending
  Plan plan;
  MemoryMap map;
  Emitter emit;

  // Of the program that is being emitted
  bool in_step = false;
  bool in_backward = false;
};

// What an update of chunks changes, and under which names.
struct Update {
  Generation from = Generation::kOld;
  Generation to = Generation::kOld;
  Predicate predicate = Predicate::kAlways;
  bool gradient_on_nvme = false;  // where the placement spills it
  bool with_frozen = false;       // the weights' spill covers frozen elements too
  Place gradient = {};            // in backward: the final gradient
};

// Which planes of a chunk's state an op has: all, all but exp_avg_sq, or that one.
enum class StatePart : uint8_t { kAll, kEarly, kLate };

class BuilderPiece {
 protected:
  explicit BuilderPiece(Building& building)
      : building_(building),
        input_(building.input),
        placement_(building.placement),
        plan_(building.plan),
        map_(building.map),
        emit_(building.emit) {}

  bool in_step() const { return building_.in_step; }
  int segment_count() const { return static_cast<int>(input_.spec->segments.size()); }
  const model::Segment& segment_of(int segment) const { return input_.spec->segments[segment]; }
  const model::Footprint& footprint(int segment) const {
    return building_.ground.footprints[segment];
  }
  model::Parts parts(int segment) const {
    return model::parts_of(*input_.spec, input_.shape, segment);
  }
  int contributions(int segment) const { return building_.contributions[segment]; }
  bool is_trainable(int segment) const { return segment_of(segment).trainable_numel > 0; }
  bool is_home(int segment) const { return map_.segments[segment].home; }
  // True where a segment's frozen elements stay in no memory: each use reads them from their
  // source.
  bool frozen_from_source(int segment) const {
    return input_.frozen_in_source && !is_home(segment) && !map_.segments[segment].host_hi.exists();
  }
  Arena compute_arena() const { return input_.device.discrete ? Arena::kDevice : Arena::kHost; }
  Update update() const {
    const UpdateRule& rule = input_.update();
    return {.to = rule.next, .predicate = rule.predicate, .gradient_on_nvme = rule.waits};
  }

  Generation piece_generation(const Piece& piece, Generation generation) const;
  Value hi_value(int segment, Generation generation) const;
  Value gradient_value(int segment, int index, int reduced) const;
  Value final_gradient(int segment) const;
  std::vector<Piece> gradient_pieces(int segment) const;
  std::vector<Piece> update_pieces(int segment) const;  // the elements that this rank updates
  // A chunk's state where it is updated. `slot`: in the ring, used where none is resident.
  StateSlot state_at(int chunk, int64_t slot) const;
  Access norm_access(Mode mode, int segment, Arena arena, int reduced) const;

  // Of the open op
  void predicate(Op& op, const Update& update);
  void decision(Mode mode, Generation generation);
  void bounce(const Op& op, Arena arena);  // after the values, which lie in this arena
  int64_t state_accesses(Mode mode, const StateSlot& slot, int chunk, Generation generation,
                         StatePart part = StatePart::kAll);  // returns their bytes

  Building& building_;
  const PlanInput& input_;
  const Placement& placement_;
  Plan& plan_;
  const MemoryMap& map_;
  Emitter& emit_;
};

}  // namespace strata::plan
