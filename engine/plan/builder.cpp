// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/builder.h"

#include <functional>
#include <optional>

#include "engine/base/tasks.h"
#include "engine/plan/pass_order.h"
#include "engine/plan/state_stream.h"

namespace strata::plan {
namespace {

// Puts the programs of one placement together.
class Builder : BuilderPiece {
 public:
  explicit Builder(Building& building) : BuilderPiece(building) {}
  Plan build_boundary();  // and no program
  Plan build_one(ProgramName name);

 private:
  void begin(ProgramName name);
  void put(Generation final_generation, bool accepts_pending, bool leaves_pending);
  void fill_boundary();
  void emit(ProgramName name);
  void emit_load();
  void emit_step();
  void emit_drain();
  void emit_infer(ProgramName name, OpKind head, int micro_batches);
  void emit_checkpoint();

  std::optional<ProgramPieces> pieces_;  // of the program that is emitted
};

void Builder::begin(ProgramName name) {
  const auto count = static_cast<size_t>(segment_count());
  const bool updates = name == ProgramName::kStep || name == ProgramName::kDrain;
  const size_t chunks = plan_.layout.chunks.size();
  const size_t passes = count * static_cast<size_t>(input_.micro_batches + 1);
  emit_.begin(name, plan_.sides, (updates ? 4 : 2) * chunks + 6 * passes,
              (updates ? 32 : 12) * chunks + 32 * passes);
  building_.in_step = name == ProgramName::kStep;
  building_.in_backward = false;
  pieces_.emplace(building_);
}

void Builder::put(Generation final_generation, bool accepts_pending, bool leaves_pending) {
  Program program = emit_.finish(in_step());
  program.final_generation = final_generation;
  program.accepts_pending = accepts_pending;
  program.leaves_pending = leaves_pending;
  plan_.programs[static_cast<size_t>(program.name)] = std::move(program);
}

// Initial or saved state is converted a chunk at a time into the slots that an update would use.
void Builder::emit_load() {
  begin(ProgramName::kLoad);
  pieces_->exchange.take_inputs({ValueKind::kRope}, 0);
  if (!input_.inference) pieces_->exchange.take_decision();
  StateStream stream(building_, pieces_->weights, pieces_->updates);
  const Update stored = {
      .from = Generation::kOld, .to = Generation::kOld, .with_frozen = !input_.frozen_in_source};
  for (int s = 0; s < segment_count(); ++s) {
    const Place device = map_.segments[s].device_hi;
    const bool lasts = !frozen_from_source(s);
    if (is_home(s)) {
      stream.load_home(s);
      continue;
    }
    if (segment_of(s).numel() == 0 || !(is_trainable(s) || lasts || device.exists())) continue;
    const Place weights = pieces_->weights.take(s);
    for (int c = plan_.layout.first_chunk[s]; c < plan_.layout.first_chunk[s + 1]; ++c) {
      if (plan_.layout.chunks[c].frozen && !lasts && !device.exists()) continue;
      stream.load(c, weights, stored);
    }
    pieces_->weights.spill(s, weights, stored);
    if (device.exists()) pieces_->weights.share_on_device(s, weights, device, Generation::kOld);
    pieces_->weights.release(s);
  }
  put(Generation::kOld, false, false);
}

// A plan for inference has an empty one.
void Builder::emit_step() {
  begin(ProgramName::kStep);
  if (!input_.inference) {
    PassOrder(building_, *pieces_).train();
    pieces_->gradients.decide();
  }
  const UpdateRule& rule = input_.update();
  put(rule.next, rule.waits, rule.waits);
}

void Builder::emit_drain() {
  begin(ProgramName::kDrain);
  const UpdateRule& rule = input_.update();
  if (rule.waits) {
    for (int s = 0; s < segment_count(); ++s) {
      if (!is_trainable(s)) continue;
      const Place weights = pieces_->weights.fetch(s, Generation::kOld);
      pieces_->updates.apply(s, weights, update());
      const Place device = map_.segments[s].device_hi;
      if (device.exists()) pieces_->weights.share_on_device(s, weights, device, rule.next);
      pieces_->weights.release(s);
    }
    if (!input_.inference) pieces_->gradients.decide();
  }
  put(rule.waits ? rule.next : Generation::kOld, rule.waits, false);
}

// A plan with a cache evaluates nothing.
void Builder::emit_infer(ProgramName name, OpKind head, int micro_batches) {
  begin(name);
  if (name == ProgramName::kGenerate || !input_.shape.is_cached()) {
    PassOrder(building_, *pieces_).infer(head, micro_batches);
  }
  put(Generation::kOld, false, false);
}

// Streams every trainable chunk's state of this rank to whoever saves it.
void Builder::emit_checkpoint() {
  begin(ProgramName::kCheckpoint);
  StateStream stream(building_, pieces_->weights, pieces_->updates);
  for (int s = 0; s < segment_count(); ++s) {
    if (!is_trainable(s)) continue;
    const Place weights = pieces_->weights.fetch(s, Generation::kOld);
    for (int c = plan_.layout.first_chunk[s]; c < plan_.layout.first_chunk[s + 1]; ++c) {
      if (plan_.layout.chunks[c].frozen) continue;
      if (is_home(s)) {
        stream.save_home(c);
      } else {
        stream.save(c, weights);
      }
    }
    pieces_->weights.release(s);
  }
  put(Generation::kOld, false, false);
}

void Builder::fill_boundary() {
  const int64_t hi_width = width_of(Plane::kHi, plan_.recipe);
  plan_.boundary.reserve(6 * plan_.layout.chunks.size());
  const auto hold = [&](const Place& place, const Piece& piece, int64_t width, const Value& value,
                        bool pending) {
    plan_.boundary.push_back({place.arena, place.address(piece, width), piece.count * width,
                              piece.first * width, value, pending});
  };
  for (int s = 0; s < segment_count(); ++s) {
    const SegmentPlaces& places = map_.segments[s];
    const Value hi = hi_value(s, Generation::kOld);
    for (const Piece& piece :
         pieces_of(plan_.layout, s, plan_.mesh.weight_shards(), plan_.mesh.shard_rank(), true)) {
      if (places.home || (piece.frozen && frozen_from_source(s))) continue;
      hold(places.host_hi.exists() ? places.host_hi : places.stored(piece), piece, hi_width, hi,
           false);
    }
    for (const Piece& piece : pieces_of(plan_.layout, s, 1, 0, true)) {
      if (places.device_hi.exists()) hold(places.device_hi, piece, hi_width, hi, false);
    }
    if (!input_.update().waits) continue;
    const Value gradient = final_gradient(s);
    const bool held = places.held_gradient.exists();
    for (const Piece& piece : held ? gradient_pieces(s) : update_pieces(s)) {
      hold(held ? places.held_gradient : places.nvme_gradient, piece, kGradientWidth, gradient,
           true);
    }
  }
  for (int c = 0; c < static_cast<int>(plan_.layout.chunks.size()); ++c) {
    if (plan_.layout.chunks[c].frozen) continue;
    const StateSlot& slot = map_.state[c].exists() ? map_.state[c] : map_.nvme_state[c];
    const Piece piece = state_piece(plan_, c);
    for (Plane plane : kStatePlanes) {
      const int64_t width = width_of(plane, plan_.recipe);
      const Value value = {
          .kind = ValueKind::kPlane, .plane = plane, .segment = plan_.layout.chunks[c].segment};
      if (width == 0) continue;
      plan_.boundary.push_back({slot.arena, plane_address(plan_, c, slot, plane),
                                piece.count * width, piece.first * width, value, false});
    }
  }
  const Exchange& rope = exchange_of(map_, ValueKind::kRope);
  for (int i = 0; i < rope.count; ++i) {
    plan_.boundary.push_back({compute_arena(),
                              rope.device + i * rope.stride,
                              model::rope_bytes(input_.spec->architecture, i, input_.shape),
                              0,
                              {.kind = ValueKind::kRope, .index = i},
                              false});
  }
  for (int s = 0; s < segment_count(); ++s) {
    const int64_t bytes = model::cache_bytes(*input_.spec, s, input_.shape, input_.device);
    if (bytes == 0) continue;
    plan_.boundary.push_back({compute_arena(),
                              map_.cache[s],
                              bytes,
                              0,
                              {.kind = ValueKind::kCache, .segment = s},
                              false});
  }
  if (input_.inference) return;
  plan_.boundary.push_back(
      {Arena::kControl, map_.decision, kDecisionBytes, 0, {.kind = ValueKind::kDecision}, false});
}

void Builder::emit(ProgramName name) {
  switch (name) {
    case ProgramName::kLoad:
      return emit_load();
    case ProgramName::kStep:
      return emit_step();
    case ProgramName::kDrain:
      return emit_drain();
    case ProgramName::kEval:
      return emit_infer(name, OpKind::kEvaluate, plan_.eval_micro_batches);
    case ProgramName::kGenerate:
      return emit_infer(name, OpKind::kLogits, 1);
    case ProgramName::kCheckpoint:
      return emit_checkpoint();
  }
}

Plan Builder::build_boundary() {
  fill_boundary();
  return std::move(building_.plan);
}

Plan Builder::build_one(ProgramName name) {
  emit(name);
  return std::move(building_.plan);
}

}  // namespace

Plan build_plan(const PlanInput& input, const Placement& placement) {
  const Ground ground = ground_of(input);
  Plan plan;
  std::array<Program, kProgramCount> programs;
  std::vector<std::function<void()>> tasks;
  const auto add = [&](int name) {
    tasks.push_back([&, name] {
      Plan one = build_program(input, ground, placement, static_cast<ProgramName>(name));
      programs[name] = std::move(one.programs[name]);
    });
  };
  add(static_cast<int>(ProgramName::kStep));  // takes longest
  for (int name = 0; name < kProgramCount; ++name) {
    if (name != static_cast<int>(ProgramName::kStep)) add(name);
  }
  tasks.push_back([&] {
    Building building(input, ground, placement);
    plan = Builder(building).build_boundary();
  });
  run_tasks(tasks);
  plan.programs = std::move(programs);
  return plan;
}

Plan build_program(const PlanInput& input, const Ground& ground, const Placement& placement,
                   ProgramName name) {
  Building building(input, ground, placement);
  return Builder(building).build_one(name);
}

}  // namespace strata::plan
