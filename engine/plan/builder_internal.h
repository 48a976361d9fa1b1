// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <vector>

#include "engine/plan/emitter.h"
#include "engine/plan/input.h"
#include "engine/plan/memory_map.h"
#include "engine/plan/slot_ring.h"

namespace strata::plan {

// Emits the programs of one placement. Split by subject: builder_weights.cpp brings weights to
// where they are computed on, builder_update.cpp updates and moves state and gradients,
// builder_home.cpp serves what lives on the device,
// builder_passes.cpp emits forward and backward, builder.cpp puts programs together.
class Builder {
 public:
  Builder(const PlanInput& input, const Ground& ground, const Placement& placement);
  Plan build();
  Plan build_one(ProgramName name);

 private:
  // What apply_update changes, and under which names.
  struct Update {
    Generation from = Generation::kOld;
    Generation to = Generation::kOld;
    Predicate predicate = Predicate::kAlways;
    bool gradient_on_nvme = false;  // where the placement spills it
    bool with_frozen = false;       // the weights' spill covers frozen elements too
  };
  Update update() const {
    const UpdateRule& rule = input_.update();
    return {Generation::kOld, rule.next, rule.predicate, rule.waits, false};
  }

  // builder.cpp
  void begin(ProgramName name);
  void put(Generation final_generation, bool accepts_pending, bool leaves_pending);
  void fill_boundary();
  void emit(ProgramName name);
  void emit_load();
  // In host memory: weights of the chunk's own part at `weights`; its state, where it is trained,
  // in `state`.
  void convert(Lane lane, int chunk, int64_t weights, const StateSlot& state);
  void save(int chunk, int64_t weights, const StateSlot& state);
  void load_chunk(int chunk, const Place& weights, const Update& stored);
  void save_chunk(int chunk, const Place& weights);
  void emit_layer_major();
  void emit_external();
  void emit_step();
  void emit_drain();
  void emit_eval(ProgramName name, OpKind head);
  void emit_checkpoint();

  // builder_weights.cpp
  bool is_trainable(int segment) const { return segment_of(segment).trainable_numel > 0; }
  // True where a segment's frozen elements stay in no memory: each use reads them from their
  // source.
  bool frozen_from_source(int segment) const {
    return input_.frozen_in_source && !is_home(segment) && !map_.segments[segment].host_hi.exists();
  }
  const model::Segment& segment_of(int segment) const { return input_.spec->segments[segment]; }
  Arena compute_arena() const { return input_.device.discrete ? Arena::kDevice : Arena::kHost; }
  Generation piece_generation(const Piece& piece, Generation generation) const;
  Value hi_value(int segment, Generation generation) const;
  bool is_home(int segment) const { return map_.segments[segment].home; }
  Place take_weights(int segment);  // of the own part: resident, or a slot of the ring
  Place fetch_weights(int segment, Generation generation);
  void fetch_into(int segment, const Place& place, Generation generation);
  void fetch_stored(int segment, const Place& place, Generation generation);
  void spill_weights(int segment, const Place& place, const Update& update);
  void gather_weights(int segment, const Place& from, const Place& to, Generation generation);
  void upload_weights(int segment, const Place& from, const Place& to, Generation generation);
  void acquire_weights(int segment, Generation generation, bool update);
  void acquire_shared(int segment, Generation generation);
  void acquire_whole(int segment, Generation generation, bool update);
  void acquire_sharded(int segment, Generation generation, bool update);
  void acquire_discrete(int segment, Generation generation, bool update);
  void after_update(int segment, const Place& part, const Update& update);
  void share_on_device(int segment, const Place& part, const Place& whole, Generation generation);
  void release_weights(int segment);
  void read_weights(int segment, Generation generation);  // accesses of the open op
  Place ring_place(int64_t offset) const;

  // builder_update.cpp
  void apply_update(int segment, const Place& weights, const Update& update);
  // Which planes of a chunk's state an op has: all, all but exp_avg_sq, or that one.
  enum class Part : uint8_t { kAll, kEarly, kLate };
  int64_t take_state(int chunk, const Update& update);
  void fetch_state(int chunk, int64_t slot, Generation generation);
  void fetch_gradient(int chunk, int64_t slot, const Update& update);
  void optimize(int chunk, const Place& weights, int64_t slot, const Update& update);
  void spill_state(int chunk, const StateSlot& from, const Update& update, Part part);
  void spill_behind();
  bool writes_behind(int chunk) const;
  StateSlot state_at(int chunk, int64_t slot) const;
  StateSlot updated_state(int chunk, int64_t slot) const;
  int64_t state_accesses(Mode mode, const StateSlot& slot, int chunk, Generation generation,
                         Part part = Part::kAll);  // of the open op; returns their bytes
  void predicate(Op& op, const Update& update);
  void decision(Mode mode, Generation generation);  // access of the open op
  int contributions(int segment) const { return contributions_[segment]; }
  Value gradient_value(int segment, int index, int reduced) const;
  Value final_gradient(int segment) const;
  void begin_gradient(int segment);
  void add_gradient(int segment);  // accesses of the open op: one more contribution
  void finish_gradient(int segment);
  Place reduce_gradient(int segment);
  Place reduce_over(GroupName group, int segment, const Place& from, int reduced);
  Place download_gradient(int segment, const Place& from);
  void norm_partial(int segment, const Place& gradient);
  void spill_gradient(int segment, const Place& gradient);
  void update_in_backward(int segment, const Place& gradient);
  void decide();
  std::vector<Piece> gradient_pieces(int segment) const;
  std::vector<Piece> update_pieces(int segment) const;

  // builder_home.cpp
  StateSlot staged_state(const Piece& weights, int64_t slot) const;
  void move_chunk(OpKind kind, int chunk, const Piece& weights, int64_t slot);
  void pass_norm(Op& op, const Access& from, const Access& to);
  void load_home(int segment);
  void save_home(int chunk);
  Access norm_access(Mode mode, int segment, Arena arena, int reduced) const;
  void download_norms();
  void reduce_norms();

  // builder_exchange.cpp
  void take_inputs(std::initializer_list<ValueKind> kinds, int micro_batches);
  void give_results(ValueKind kind, int micro_batches);
  void read_given(ValueKind kind, int index);  // accesses of the open op
  void write_result(ValueKind kind, int index);
  void read_rope(int segment);

  // builder_activations.cpp
  struct ActivationPlace {
    Arena arena;
    int64_t offset;
  };
  int activation_key(int segment, int micro_batch) const {
    return segment * input_.micro_batches + micro_batch;
  }
  Value activation_value(int segment, int micro_batch) const;
  Value activation_gradient_value(int segment, int micro_batch) const;
  int64_t activation_at(int segment, int micro_batch);
  void read_activation(int segment, int micro_batch);  // accesses of the open op
  void write_activation(int segment, int micro_batch);
  void move_activation(OpKind kind, Lane lane, int segment, int micro_batch,
                       const ActivationPlace& from, const ActivationPlace& to);
  int64_t fetch_activation(int segment, int micro_batch);
  void bring_activation(int segment, int micro_batch);
  void take_activation(int segment, int micro_batch);
  void keep_activation(int segment, int micro_batch);
  void release_activation(int segment, int micro_batch);

  // builder_passes.cpp
  void forward_segment(int segment, Generation generation);
  void forward_micro_batch(int segment, int micro_batch, Generation generation);
  void head_micro_batch(int segment, int micro_batch, Generation generation, OpKind kind);
  void backward_unit(int unit, Generation generation);
  void recompute(int segment, int micro_batch, Generation generation);
  void backward_micro_batch(int segment, int micro_batch, Generation generation, bool recomputes);
  void backward_embedding(int segment);
  void external_pass(OpKind kind, int segment, int micro_batch, Generation generation);
  void scratch(int64_t bytes);
  void interior(Mode mode, int segment, int micro_batch);
  const model::Footprint& footprint(int segment) const;

  const PlanInput& input_;
  const Placement& placement_;
  Plan plan_;
  MemoryMap map_;
  Emitter emit_;
  const std::vector<model::Footprint>& footprints_;
  std::vector<int> contributions_;  // by segment: what its whole gradient is summed from

  // State of emission
  SlotRing weights_ring_, state_ring_, gradient_ring_, activation_ring_, device_weights_ring_,
      device_gradient_ring_;
  std::vector<Place> compute_weights_;  // by segment: where ops read its weights now
  std::vector<Place> part_weights_;     // by segment: where the own part is, for an update
  std::vector<Place> accumulators_;     // by segment: where its gradient is summed now
  std::vector<Place> final_gradients_;  // by segment, in-backward: the gradient to update from
  std::vector<int> summed_;             // by segment: contributions emitted so far
  bool in_step_ = false;
  bool in_backward_ = false;
};

}  // namespace strata::plan
