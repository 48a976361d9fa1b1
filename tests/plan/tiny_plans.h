// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/plan/plan.h"

// Complete plans of a model of three segments (embed, b0.mlp, head), small enough to be read op by
// op. They share no code with the planner: every op is written down here, and waits come from a
// plain comparison of all pairs of ops.
namespace strata::plan::tiny {

struct Shape {
  bool resident = false;  // hi of all segments, and all of the head's state, stay in host memory
  bool discrete = false;  // computes in a device arena
  bool tied = false;      // the head reads the embedding's matrix
  bool frozen = false;    // the second half of b0.mlp has no state but hi
  bool spills_gradients = false;  // the gradient of b0.mlp is held on NVMe
  OptimizerMode mode = OptimizerMode::kDeferred;
  int world = 1;
  int rank = 0;
  int zero_stage = 3;
  int micro_batches = 2;
};

struct Tiny {
  model::ModelSpec spec;
  Plan plan;
};

Tiny make(const Shape& shape);

// What conflicts: both touch a byte and one of them writes it.
inline bool conflict(const Program& program, const Op& a, const Op& b) {
  for (const Access& x : program.accesses_of(a)) {
    for (const Access& y : program.accesses_of(b)) {
      if (x.arena == y.arena && (x.mode == Mode::kWrite || y.mode == Mode::kWrite) &&
          x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes) {
        return true;
      }
    }
  }
  return false;
}

namespace detail {

inline constexpr int64_t kChunk = 4096;  // elements a shard
inline constexpr int kEmbed = 0, kMlp = 1, kHead = 2;

inline Value plane(int segment, Plane which, Generation generation) {
  Value value;
  value.kind = ValueKind::kPlane;
  value.plane = which;
  value.generation = generation;
  value.segment = segment;
  return value;
}

inline Value numbered(ValueKind kind, int segment, int index) {
  Value value;
  value.kind = kind;
  value.segment = segment;
  value.index = index;
  return value;
}

inline Value gradient(int segment, int contributions, bool reduced) {
  Value value = numbered(ValueKind::kGradient, segment, contributions);
  value.reduced = reduced;
  return value;
}

inline Value decision(Generation generation) {
  Value value;
  value.kind = ValueKind::kDecision;
  value.generation = generation;
  return value;
}

struct Slot {
  Arena arena = Arena::kHost;
  int64_t offset = 0;
};

class Builder {
 public:
  explicit Builder(const Shape& shape) : shape_(shape) {}

  Tiny build() {
    describe_model();
    reserve();
    hold();
    load();
    step();
    if (shape_.mode == OptimizerMode::kDeferred) drain();
    passes(ProgramName::kEval, OpKind::kEvaluate);
    passes(ProgramName::kGenerate, OpKind::kLogits);
    checkpoint();
    for (Program& program : tiny_.plan.programs) settle(program);
    return std::move(tiny_);
  }

 private:
  static constexpr std::array<Plane, 4> kPlanes = {Plane::kHi, Plane::kLo, Plane::kExpAvg,
                                                   Plane::kExpAvgSq};

  bool deferred() const { return shape_.mode == OptimizerMode::kDeferred; }
  bool sharded() const { return shape_.world > 1; }
  int width(Plane p) const { return p == Plane::kHi || p == Plane::kLo ? 2 : 4; }
  int contributions(int s) const {
    return shape_.micro_batches * (shape_.tied && s == kEmbed ? 2 : 1);
  }

  void describe_model() {
    Plan& plan = tiny_.plan;
    plan.recipe = model::Recipe::kBf16;
    plan.shape = {2, 16};
    plan.micro_batches = shape_.micro_batches;
    plan.eval_micro_batches = 1;
    plan.mode = shape_.mode;
    plan.discrete = shape_.discrete;
    plan.mesh = {shape_.world, shape_.rank, shape_.zero_stage};
    tiny_.spec.architecture.hidden = 64;
    tiny_.spec.architecture.tied = shape_.tied;
    plan.layout.shard_count = plan.mesh.state_shards();
    const char* names[] = {"embed", "b0.mlp", "head"};
    const model::SegmentKind kinds[] = {model::SegmentKind::kEmbedding, model::SegmentKind::kMlp,
                                        model::SegmentKind::kHead};
    for (int s = 0; s < 3; ++s) {
      model::Segment segment;
      segment.kind = kinds[s];
      segment.unit = s;
      segment.name = names[s];
      segment.shares = s == kHead && shape_.tied ? kEmbed : -1;
      const int64_t chunk = kChunk * plan.layout.shard_count;
      const int chunks = s == kHead ? 1 : 2;
      const int frozen = s == kMlp && shape_.frozen ? 1 : 0;
      segment.trainable_numel = chunk * (chunks - frozen);
      segment.frozen_numel = chunk * frozen;
      plan.layout.first_chunk.push_back(static_cast<int>(plan.layout.chunks.size()));
      for (int c = 0; c < chunks; ++c) {
        plan.layout.chunks.push_back({s, c * chunk, chunk, c >= chunks - frozen, {}});
      }
      tiny_.spec.segments.push_back(segment);
      tiny_.spec.units.push_back({names[s], {s}});
    }
    plan.layout.first_chunk.push_back(static_cast<int>(plan.layout.chunks.size()));
    for (int i = 0; i < kProgramCount; ++i) {
      plan.programs[i].name = static_cast<ProgramName>(i);
    }
  }

  Slot slot(Arena arena, const std::string& purpose, int64_t bytes) {
    ArenaLayout& arenas = tiny_.plan.arenas;
    int64_t& used = arenas.bytes[static_cast<size_t>(arena)];
    arenas.lines.push_back({arena, purpose, used, bytes});
    const Slot made = {arena, used};
    used += bytes;
    arenas.budget[static_cast<size_t>(arena)] = used;
    return made;
  }

  int64_t numel(int s) const { return tiny_.spec.segments[s].numel(); }
  int64_t own_numel(int s) const { return numel(s) / tiny_.plan.layout.shard_count; }

  void reserve() {
    const Arena near = shape_.discrete ? Arena::kDevice : Arena::kHost;
    const int64_t most = numel(kEmbed);
    for (int s = 0; s < 3; ++s) {
      for (const Plane p : kPlanes) {
        nvme_[s][static_cast<int>(p)] = slot(Arena::kNvme, "state", own_numel(s) * width(p));
      }
      nvme_gradient_[s] = slot(Arena::kNvme, "gradients", own_numel(s) * 4);
      const bool apart = s == kEmbed || shape_.resident;
      own_[s] = apart || s == kMlp ? slot(Arena::kHost, "weights", most * 2) : own_[kMlp];
      held_[s] = slot(Arena::kHost, "held gradients", own_numel(s) * 4);
      for (const Plane p : {Plane::kLo, Plane::kExpAvg, Plane::kExpAvgSq}) {
        state_[s][static_cast<int>(p)] = s == kMlp
                                             ? state_[kEmbed][static_cast<int>(p)]
                                             : slot(Arena::kHost, "state", own_numel(s) * width(p));
      }
      state_[s][0] = own_[s];
      const bool copies = shape_.discrete || sharded();
      near_[s] = copies ? slot(near, "weights", most * 2) : own_[s];
      sums_[s] = copies ? slot(near, "gradients", numel(s) * 4) : held_[s];
      partial_[s] = slot(Arena::kControl, "norms", 16);
    }
    decision_ = slot(Arena::kControl, "decision", 64);
    for (int i = 0; i < shape_.micro_batches; ++i) {
      for (int s = 1; s < 3; ++s) activations_[s].push_back(slot(near, "activations", 4096));
      activation_gradients_.push_back(slot(near, "activation gradients", 4096));
    }
    interior_ = slot(near, "interior", 8192);
    workspace_ = slot(near, "workspace", 4096);
  }

  bool resident(int s, Plane p) const { return shape_.resident && (p == Plane::kHi || s == kHead); }
  bool spilled_gradient(int s) const { return shape_.spills_gradients && s == kMlp; }

  void hold() {
    std::vector<Holding>& boundary = tiny_.plan.boundary;
    for (int s = 0; s < 3; ++s) {
      each_chunk(s, [&](int c, bool frozen) {
        for (const Plane p : kPlanes) {
          if (frozen && p != Plane::kHi) continue;
          const Slot where =
              resident(s, p) ? state_[s][static_cast<int>(p)] : nvme_[s][static_cast<int>(p)];
          const Access a = part(Mode::kRead, where, c, plane(s, p, Generation::kOld), width(p));
          boundary.push_back({a.arena, a.offset, a.bytes, a.first, a.value, false});
        }
        if (frozen || !deferred()) return;
        const Slot where = spilled_gradient(s) ? nvme_gradient_[s] : held_[s];
        const Access a = part(Mode::kRead, where, c, gradient(s, contributions(s), sharded()), 4);
        boundary.push_back({a.arena, a.offset, a.bytes, a.first, a.value, true});
      });
    }
    if (!deferred()) return;
    boundary.push_back(
        {decision_.arena, decision_.offset, 16, 0, decision(Generation::kOld), true});
  }

  template <class F>
  void each_chunk(int s, F f) const {
    const shard::Layout& layout = tiny_.plan.layout;
    for (int c = layout.first_chunk[s]; c < layout.first_chunk[s + 1]; ++c) {
      f(c, layout.chunks[c].frozen);
    }
  }

  // This rank's part of a chunk, in a slot that packs the parts of a segment.
  Access part(Mode mode, Slot where, int c, Value value, int element) const {
    const shard::Layout& layout = tiny_.plan.layout;
    const shard::Chunk& chunk = layout.chunks[c];
    const int64_t own = layout.part_numel(c);
    const int64_t first = chunk.offset + (layout.shard_count > 1 ? shape_.rank : 0) * own;
    return {
        mode,          where.arena,     where.offset + chunk.offset / layout.shard_count * element,
        own * element, first * element, value};
  }

  Access whole(Mode mode, Slot where, Value value, int64_t bytes) const {
    return {mode, where.arena, where.offset, bytes, 0, value};
  }

  // ---- ops

  void begin(ProgramName name) { program_ = &tiny_.plan.programs[static_cast<size_t>(name)]; }

  Op& add(OpKind kind, Lane lane, int segment, std::vector<Access> accesses) {
    Op op;
    op.kind = kind;
    op.lane = lane;
    op.segment = segment;
    op.unit = segment;
    op.access_begin = static_cast<uint32_t>(program_->accesses.size());
    for (const Access& access : accesses) {
      program_->accesses.push_back(access);
      if (access.mode == Mode::kRead && access.value.kind != ValueKind::kDecision)
        op.bytes += access.bytes;
    }
    op.access_end = static_cast<uint32_t>(program_->accesses.size());
    program_->lanes[static_cast<size_t>(lane)].push_back(
        static_cast<uint32_t>(program_->ops.size()));
    program_->ops.push_back(op);
    return program_->ops.back();
  }

  Access pending_decision() const {
    return whole(Mode::kRead, decision_, decision(Generation::kOld), 16);
  }

  void move(OpKind kind, Lane lane, int s, std::vector<std::pair<Access, Access>> moves,
            bool pending) {
    if (moves.empty()) return;
    std::vector<Access> accesses;
    for (auto& [from, to] : moves) {
      accesses.push_back(from);
      accesses.push_back(to);
    }
    if (pending) accesses.push_back(pending_decision());
    add(kind, lane, s, accesses).predicate = pending ? Predicate::kPending : Predicate::kAlways;
  }

  void fetch(int s, std::vector<Plane> planes, Generation generation, Lane lane) {
    std::vector<std::pair<Access, Access>> moves;
    each_chunk(s, [&](int c, bool frozen) {
      for (const Plane p : planes) {
        if (resident(s, p) || (frozen && p != Plane::kHi)) continue;
        const Value value = plane(s, p, generation);
        moves.push_back({part(Mode::kRead, nvme_[s][static_cast<int>(p)], c, value, width(p)),
                         part(Mode::kWrite, state_[s][static_cast<int>(p)], c, value, width(p))});
      }
    });
    move(OpKind::kFetch, lane, s, moves, false);
  }

  void spill(int s, Generation generation, bool pending, bool with_frozen) {
    std::vector<std::pair<Access, Access>> moves;
    each_chunk(s, [&](int c, bool frozen) {
      for (const Plane p : kPlanes) {
        if (resident(s, p) || (frozen && (p != Plane::kHi || !with_frozen))) continue;
        const Value value = plane(s, p, generation);
        moves.push_back({part(Mode::kRead, state_[s][static_cast<int>(p)], c, value, width(p)),
                         part(Mode::kWrite, nvme_[s][static_cast<int>(p)], c, value, width(p))});
      }
    });
    move(OpKind::kSpill, Lane::kWrite, s, moves, pending);
  }

  void move_gradient(OpKind kind, Lane lane, int s, bool pending) {
    std::vector<std::pair<Access, Access>> moves;
    const bool in = kind == OpKind::kFetch;
    each_chunk(s, [&](int c, bool frozen) {
      if (frozen) return;
      const Value value = gradient(s, contributions(s), sharded());
      moves.push_back({part(Mode::kRead, in ? nvme_gradient_[s] : held_[s], c, value, 4),
                       part(Mode::kWrite, in ? held_[s] : nvme_gradient_[s], c, value, 4)});
    });
    move(kind, lane, s, moves, pending);
  }

  void optimize(int s) {
    const Generation next = deferred() ? Generation::kUpdated : Generation::kNew;
    each_chunk(s, [&](int c, bool frozen) {
      if (frozen) return;
      std::vector<Access> accesses;
      for (const Plane p : kPlanes) {
        const Slot where = state_[s][static_cast<int>(p)];
        accesses.push_back(part(Mode::kRead, where, c, plane(s, p, Generation::kOld), width(p)));
        accesses.push_back(part(Mode::kWrite, where, c, plane(s, p, next), width(p)));
      }
      accesses.push_back(
          part(Mode::kRead, held_[s], c, gradient(s, contributions(s), sharded()), 4));
      if (deferred()) accesses.push_back(pending_decision());
      Op& op = add(OpKind::kOptimize, Lane::kOptimizer, s, accesses);
      op.predicate = deferred() ? Predicate::kPending : Predicate::kAlways;
      op.chunk = c;
      op.chunk_count = 1;
    });
  }

  void update(int s, Generation next) {
    fetch(s, {Plane::kLo, Plane::kExpAvg, Plane::kExpAvgSq}, Generation::kOld, Lane::kReadState);
    if (deferred() && spilled_gradient(s)) move_gradient(OpKind::kFetch, Lane::kReadState, s, true);
    optimize(s);
    spill(s, next, deferred(), false);
  }

  // From own parts in host memory to what compute reads.
  void bring(int s, Generation generation) {
    const Value value = plane(s, Plane::kHi, generation);
    if (sharded()) {
      std::vector<Access> accesses;
      each_chunk(s,
                 [&](int c, bool) { accesses.push_back(part(Mode::kRead, own_[s], c, value, 2)); });
      accesses.push_back(whole(Mode::kWrite, near_[s], value, numel(s) * 2));
      add(OpKind::kGather, Lane::kComm, s, accesses);
    } else if (shape_.discrete) {
      move(OpKind::kUpload, Lane::kUpload, s,
           {{whole(Mode::kRead, own_[s], value, numel(s) * 2),
             whole(Mode::kWrite, near_[s], value, numel(s) * 2)}},
           false);
    }
  }

  Access weights(int s, Generation generation) const {
    return whole(Mode::kRead, near_[s], plane(s, Plane::kHi, generation), numel(s) * 2);
  }
  Access activation(Mode mode, int s, int i) const {
    return whole(mode, activations_[s][i], numbered(ValueKind::kActivation, s, i), 4096);
  }
  Access activation_gradient(Mode mode, int s, int i) const {
    return whole(mode, activation_gradients_[i], numbered(ValueKind::kActivationGradient, s, i),
                 4096);
  }

  Op& compute(OpKind kind, int s, int i, std::vector<Access> accesses) {
    accesses.push_back(whole(Mode::kWrite, workspace_, Value{}, 4096));
    Op& op = add(kind, Lane::kCompute, s, accesses);
    op.micro_batch = i;
    return op;
  }

  void forward(int s, int i, Generation generation) {
    std::vector<Access> accesses = {weights(s, generation), activation(Mode::kWrite, s + 1, i)};
    if (s > 0) accesses.push_back(activation(Mode::kRead, s, i));
    compute(OpKind::kForward, s, i, accesses);
  }

  void head(OpKind kind, int i, Generation generation) {
    std::vector<Access> accesses = {weights(kHead, generation), activation(Mode::kRead, kHead, i)};
    if (shape_.tied) accesses.push_back(weights(kEmbed, generation));
    if (kind == OpKind::kLoss) {
      accesses.push_back(activation_gradient(Mode::kWrite, kHead, i));
      accumulate(kHead, i + 1, accesses);
      if (shape_.tied) accumulate(kEmbed, i + 1, accesses);
    }
    compute(kind, kHead, i, accesses);
  }

  void accumulate(int s, int sum, std::vector<Access>& accesses) const {
    const int64_t bytes = tiny_.spec.segments[s].trainable_numel * 4;
    if (sum > 1)
      accesses.push_back(whole(Mode::kRead, sums_[s], gradient(s, sum - 1, false), bytes));
    accesses.push_back(whole(Mode::kWrite, sums_[s], gradient(s, sum, false), bytes));
  }

  void backward(int s, int i, Generation generation) {
    std::vector<Access> accesses = {activation_gradient(Mode::kRead, s + 1, i)};
    if (s == kMlp) {
      const Access interior =
          whole(Mode::kWrite, interior_, numbered(ValueKind::kInterior, s, i), 8192);
      compute(OpKind::kRecompute, s, i,
              {weights(s, generation), activation(Mode::kRead, s, i), interior});
      Access input = interior;
      input.mode = Mode::kRead;
      accesses.insert(accesses.end(), {weights(s, generation), activation(Mode::kRead, s, i), input,
                                       activation_gradient(Mode::kWrite, s, i)});
    }
    accumulate(s, contributions(s) - shape_.micro_batches + i + 1, accesses);
    compute(OpKind::kBackward, s, i, accesses);
  }

  // What follows the last contribution to a segment's gradient.
  void finish_gradient(int s) {
    const Value sum = gradient(s, contributions(s), false);
    const Value final = gradient(s, contributions(s), sharded());
    const int64_t bytes = tiny_.spec.segments[s].trainable_numel * 4;
    if (sharded()) {
      std::vector<Access> accesses = {whole(Mode::kRead, sums_[s], sum, bytes)};
      each_chunk(
          s, [&](int c, bool) { accesses.push_back(part(Mode::kWrite, held_[s], c, final, 4)); });
      add(OpKind::kReduce, Lane::kComm, s, accesses);
    } else if (shape_.discrete) {
      move(OpKind::kDownload, Lane::kDownload, s,
           {{whole(Mode::kRead, sums_[s], sum, bytes), whole(Mode::kWrite, held_[s], sum, bytes)}},
           false);
    }
    std::vector<Access> accesses = {
        whole(Mode::kWrite, partial_[s], numbered(ValueKind::kNormPartial, s, 0), 16)};
    each_chunk(s, [&](int c, bool frozen) {
      if (!frozen) accesses.push_back(part(Mode::kRead, held_[s], c, final, 4));
    });
    add(OpKind::kNormPartial, Lane::kOptimizer, s, accesses);
    if (deferred() && spilled_gradient(s)) move_gradient(OpKind::kSpill, Lane::kWrite, s, false);
    if (!deferred()) {
      if (s == kEmbed) fetch(s, {Plane::kHi}, Generation::kOld, Lane::kReadWeights);
      update(s, Generation::kNew);
    }
  }

  // ---- programs

  void load() {
    begin(ProgramName::kLoad);
    for (int s = 0; s < 3; ++s) {
      std::vector<Access> accesses;
      each_chunk(s, [&](int c, bool frozen) {
        for (const Plane p : kPlanes) {
          if (frozen && p != Plane::kHi) continue;
          accesses.push_back(part(Mode::kWrite, state_[s][static_cast<int>(p)], c,
                                  plane(s, p, Generation::kOld), width(p)));
        }
      });
      add(OpKind::kConvert, Lane::kOptimizer, s, accesses);
      spill(s, Generation::kOld, false, true);
    }
  }

  void step() {
    begin(ProgramName::kStep);
    program_->accepts_pending = program_->leaves_pending = deferred();
    program_->final_generation = deferred() ? Generation::kUpdated : Generation::kNew;
    const Generation used = deferred() ? Generation::kUpdated : Generation::kOld;
    for (int s = 0; s < 3; ++s) {
      fetch(s, {Plane::kHi}, Generation::kOld, Lane::kReadWeights);
      if (deferred()) update(s, used);
      bring(s, used);
      for (int i = 0; i < shape_.micro_batches; ++i) {
        s == kHead ? head(OpKind::kLoss, i, used) : forward(s, i, used);
      }
    }
    finish_gradient(kHead);
    for (int s = kMlp; s >= kEmbed; --s) {
      if (s == kMlp) {
        fetch(s, {Plane::kHi}, used, Lane::kReadWeights);
        bring(s, used);
      }
      for (int i = 0; i < shape_.micro_batches; ++i) backward(s, i, used);
      finish_gradient(s);
    }
    std::vector<Access> accesses = {whole(Mode::kWrite, decision_, decision(Generation::kNew), 16)};
    for (int s = 0; s < 3; ++s) {
      accesses.push_back(
          whole(Mode::kRead, partial_[s], numbered(ValueKind::kNormPartial, s, 0), 16));
    }
    add(OpKind::kDecide, Lane::kOptimizer, -1, accesses);
  }

  void drain() {
    begin(ProgramName::kDrain);
    program_->accepts_pending = true;
    program_->final_generation = Generation::kUpdated;
    for (int s = 0; s < 3; ++s) {
      fetch(s, {Plane::kHi}, Generation::kOld, Lane::kReadWeights);
      update(s, Generation::kUpdated);
    }
  }

  void passes(ProgramName name, OpKind last) {
    begin(name);
    for (int s = 0; s < 3; ++s) {
      fetch(s, {Plane::kHi}, Generation::kOld, Lane::kReadWeights);
      bring(s, Generation::kOld);
      s == kHead ? head(last, 0, Generation::kOld) : forward(s, 0, Generation::kOld);
    }
  }

  void checkpoint() {
    begin(ProgramName::kCheckpoint);
    for (int s = 0; s < 3; ++s) {
      fetch(s, {kPlanes.begin(), kPlanes.end()}, Generation::kOld, Lane::kReadState);
      std::vector<Access> accesses;
      each_chunk(s, [&](int c, bool frozen) {
        for (const Plane p : kPlanes) {
          if (frozen) continue;
          accesses.push_back(part(Mode::kRead, state_[s][static_cast<int>(p)], c,
                                  plane(s, p, Generation::kOld), width(p)));
        }
      });
      add(OpKind::kSave, Lane::kOptimizer, s, accesses);
    }
  }

  // ---- waits: of each lane the last op that conflicts, in this program or else in the step
  // before.

  void settle(Program& program) const {
    std::vector<int> place(program.ops.size());
    std::array<int, kLaneCount> counts = {};
    for (size_t i = 0; i < program.ops.size(); ++i) {
      place[i] = counts[static_cast<size_t>(program.ops[i].lane)]++;
    }
    for (size_t i = 0; i < program.ops.size(); ++i) {
      Op& op = program.ops[i];
      op.wait_begin = static_cast<uint32_t>(program.waits.size());
      for (int lane = 0; lane < kLaneCount; ++lane) {
        if (lane == static_cast<int>(op.lane) && is_serial(op.lane)) continue;
        int here = 0;
        int before = 0;
        for (const uint32_t j : program.lanes[lane]) {
          if (!conflict(program, op, program.ops[j])) continue;
          if (j < i) here = place[j] + 1;
          before = place[j] + 1;
        }
        if (here > 0) {
          program.waits.push_back({static_cast<Lane>(lane), here});
        } else if (before > 0 && program.name == ProgramName::kStep) {
          program.waits.push_back({static_cast<Lane>(lane), before - counts[lane]});
        }
      }
      op.wait_end = static_cast<uint32_t>(program.waits.size());
    }
  }

  Shape shape_;
  Tiny tiny_;
  Program* program_ = nullptr;
  std::array<std::array<Slot, 4>, 3> nvme_, state_;
  std::array<Slot, 3> nvme_gradient_, own_, near_, held_, sums_, partial_;
  std::array<std::vector<Slot>, 3> activations_;
  std::vector<Slot> activation_gradients_;
  Slot decision_, interior_, workspace_;
};

}  // namespace detail

inline Tiny make(const Shape& shape) {
  return detail::Builder(shape).build();
}

}  // namespace strata::plan::tiny
