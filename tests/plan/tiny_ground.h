// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/plan/plan.h"

// What the tiny plans are made of: a model of three segments (embed, b0.mlp, head), its slots, and
// its state between programs.
namespace strata::plan::tiny {

struct Shape {
  bool resident = false;   // hi of all segments, and all of the head's state, stay in host memory
  bool discrete = false;   // computes in a device arena
  bool tied = false;       // the head reads the embedding's matrix
  bool frozen = false;     // the second half of b0.mlp has no state but hi
  bool in_source = false;  // and that is converted whenever it is needed
  bool spills_gradients = false;  // the gradient of b0.mlp is held on NVMe
  bool two_sides = false;  // of planes on NVMe; frozen elements, if any, must be in their source
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

// Model, slots and boundary state, with a slot of its own for nearly everything.
class Ground {
 protected:
  explicit Ground(const Shape& shape) : shape_(shape) {
    describe_model();
    reserve();
    hold();
  }

  bool deferred() const { return shape_.mode == OptimizerMode::kDeferred; }
  bool sharded() const { return shape_.world > 1; }
  int width(Plane p) const { return p == Plane::kHi || p == Plane::kLo ? 2 : 4; }
  int contributions(int s) const {
    return shape_.micro_batches * (shape_.tied && s == kEmbed ? 2 : 1);
  }

  void describe_model() {
    Plan& plan = tiny_.plan;
    plan.recipe = Recipe::kBf16;
    plan.shape = {2, 16};
    plan.micro_batches = shape_.micro_batches;
    plan.eval_micro_batches = 1;
    plan.mode = shape_.mode;
    plan.device.discrete = shape_.discrete;
    plan.mesh = {shape_.world, shape_.rank, shape_.zero_stage};
    tiny_.spec.architecture.hidden = 64;
    tiny_.spec.architecture.vocabulary = 8;
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
      if (s > kEmbed) segment.inputs = {s - 1};
      segment.shares = s == kHead && shape_.tied ? kEmbed : -1;
      const int64_t chunk = kChunk * plan.layout.shard_count;
      const int chunks = s == kHead ? 1 : 2;
      const int frozen = s == kMlp && shape_.frozen ? 1 : 0;
      segment.trainable_numel = chunk * (chunks - frozen);
      segment.frozen_numel = chunk * frozen;
      plan.layout.first_chunk.push_back(static_cast<int>(plan.layout.chunks.size()));
      for (int c = 0; c < chunks; ++c) {
        plan.layout.chunks.push_back(
            {.segment = s, .offset = c * chunk, .numel = chunk, .frozen = c >= chunks - frozen});
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
    }
    if (shape_.two_sides) {
      const int64_t stored = tiny_.plan.arenas.bytes[static_cast<size_t>(Arena::kNvme)];
      tiny_.plan.sides = {0, slot(Arena::kNvme, "other sides", stored).offset};
    }
    for (int s = 0; s < 3; ++s) {
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
    for (const ValueKind kind : {ValueKind::kTokens, ValueKind::kTargets, ValueKind::kPositions,
                                 ValueKind::kLossSum, ValueKind::kLogits}) {
      for (int i = 0; i < exchanged(kind); ++i) {
        Exchanged& one = exchanged_[{kind, i}];
        one.host = slot(Arena::kHost, "inputs and results", bytes_of(kind));
        one.near = shape_.discrete ? slot(near, "inputs and results", bytes_of(kind)) : one.host;
      }
    }
    interior_ = slot(near, "interior", 8192);
    workspace_ = slot(near, "workspace", 4096);
  }

  // Values that the caller gives or gets.
  int exchanged(ValueKind kind) const {
    return kind == ValueKind::kPositions || kind == ValueKind::kLogits ? 1 : shape_.micro_batches;
  }
  int64_t bytes_of(ValueKind kind) const {
    const Plan& plan = tiny_.plan;
    if (kind == ValueKind::kLossSum) return 8;
    if (kind == ValueKind::kPositions) return plan.shape.rows * 4;
    if (kind == ValueKind::kLogits) return plan.shape.rows * 4 * 8;
    return plan.shape.tokens() * 4;
  }
  Access far(Mode mode, ValueKind kind, int i) const {
    return whole(mode, exchanged_.at({kind, i}).host, numbered(kind, -1, i), bytes_of(kind));
  }
  Access close(Mode mode, ValueKind kind, int i) const {
    return whole(mode, exchanged_.at({kind, i}).near, numbered(kind, -1, i), bytes_of(kind));
  }

  bool resident(int s, Plane p) const { return shape_.resident && (p == Plane::kHi || s == kHead); }
  bool from_source(int s) const { return shape_.in_source && !resident(s, Plane::kHi); }
  bool spilled_gradient(int s) const { return shape_.spills_gradients && s == kMlp; }

  void hold() {
    std::vector<Holding>& boundary = tiny_.plan.boundary;
    for (int s = 0; s < 3; ++s) {
      each_chunk(s, [&](int c, bool frozen) {
        for (const Plane p : kPlanes) {
          if (frozen && (p != Plane::kHi || from_source(s))) continue;
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
    boundary.push_back(
        {decision_.arena, decision_.offset, 16, 0, decision(Generation::kOld), false});
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
    const bool updated = where.arena == Arena::kNvme && value.generation != Generation::kOld;
    return {.mode = mode,
            .arena = where.arena,
            .offset = where.offset + chunk.offset / layout.shard_count * element,
            .bytes = own * element,
            .first = first * element,
            .value = value,
            .side = updated && shape_.two_sides ? Side::kOther : Side::kLive};
  }

  Access whole(Mode mode, Slot where, Value value, int64_t bytes) const {
    return {mode, where.arena, where.offset, bytes, 0, value};
  }

  Shape shape_;
  Tiny tiny_;
  std::array<std::array<Slot, 4>, 3> nvme_, state_;
  std::array<Slot, 3> nvme_gradient_, own_, near_, held_, sums_, partial_;
  std::array<std::vector<Slot>, 3> activations_;
  std::vector<Slot> activation_gradients_;
  struct Exchanged {
    Slot host, near;
  };
  std::map<std::pair<ValueKind, int>, Exchanged> exchanged_;
  Slot decision_, interior_, workspace_;
};

}  // namespace detail

}  // namespace strata::plan::tiny
