// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <vector>

#include "tests/plan/tiny_ground.h"

// Complete plans of the tiny model, small enough to be read op by op. They share no code with the
// planner: every op is written down here, and waits come from a plain comparison of all pairs of
// ops.
namespace strata::plan::tiny {

namespace detail {

class Builder : Ground {
 public:
  explicit Builder(const Shape& shape) : Ground(shape) {}

  Tiny build() {
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
  // ---- ops

  void begin(ProgramName name) { program_ = &tiny_.plan.programs[static_cast<size_t>(name)]; }

  Op& add(OpKind kind, Lane lane, int segment, const std::vector<Access>& accesses) {
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
    auto& list = program_->lanes[static_cast<size_t>(lane)];
    if (lane == Lane::kComm) op.number = static_cast<int32_t>(list.size());
    list.push_back(static_cast<uint32_t>(program_->ops.size()));
    program_->ops.push_back(op);
    return program_->ops.back();
  }

  Access last_decision() const {
    return whole(Mode::kRead, decision_, decision(Generation::kOld), 16);
  }

  Access next_decision() const {
    return whole(Mode::kWrite, decision_, decision(Generation::kNew), 16);
  }

  void move(OpKind kind, Lane lane, int s, const std::vector<std::pair<Access, Access>>& moves,
            bool pending) {
    if (moves.empty()) return;
    std::vector<Access> accesses;
    bool asks = pending;
    for (const auto& [from, to] : moves) {
      accesses.push_back(from);
      accesses.push_back(to);
      asks |= side_of(from, false) != from.side;
    }
    if (asks) accesses.push_back(last_decision());
    add(kind, lane, s, accesses).predicate = pending ? Predicate::kPending : Predicate::kAlways;
  }

  void fetch(int s, std::vector<Plane> planes, Generation generation, Lane lane) {
    std::vector<std::pair<Access, Access>> moves;
    each_chunk(s, [&](int c, bool frozen) {
      for (const Plane p : planes) {
        if (resident(s, p) || (frozen && (p != Plane::kHi || from_source(s)))) continue;
        const Value value = plane(s, p, generation);
        moves.push_back({part(Mode::kRead, nvme_[s][static_cast<int>(p)], c, value, width(p)),
                         part(Mode::kWrite, state_[s][static_cast<int>(p)], c, value, width(p))});
      }
    });
    move(OpKind::kFetch, lane, s, moves, false);
    if (lane == Lane::kReadWeights) convert_frozen(s);
  }

  void convert_frozen(int s) {
    each_chunk(s, [&](int c, bool frozen) {
      if (!frozen || !from_source(s)) return;
      Op& op = add(OpKind::kConvert, Lane::kReadWeights, s,
                   {part(Mode::kWrite, own_[s], c, plane(s, Plane::kHi, Generation::kOld), 2)});
      op.chunk = c;
      op.chunk_count = 1;
    });
  }

  void spill(int s, Generation generation, bool pending, bool with_frozen) {
    std::vector<std::pair<Access, Access>> moves;
    each_chunk(s, [&](int c, bool frozen) {
      for (const Plane p : kPlanes) {
        const bool stored = p == Plane::kHi && with_frozen && !from_source(s);
        if (resident(s, p) || (frozen && !stored)) continue;
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
      accesses.push_back(last_decision());
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
  // The output of segment s, and its gradient.
  Access activation(Mode mode, int s, int i) const {
    return whole(mode, activations_[s + 1][i], numbered(ValueKind::kActivation, s, i), 4096);
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

  // What the caller gives of `count` micro-batches, and what it gets.
  void take(const std::vector<ValueKind>& kinds, int count) {
    std::vector<Access> given;
    std::vector<std::pair<Access, Access>> moves;
    for (const ValueKind kind : kinds) {
      for (int i = 0; i < std::min(count, exchanged(kind)); ++i) {
        given.push_back(far(Mode::kWrite, kind, i));
        moves.push_back({far(Mode::kRead, kind, i), close(Mode::kWrite, kind, i)});
      }
    }
    add(OpKind::kInput, Lane::kOptimizer, -1, given);
    if (shape_.discrete) move(OpKind::kUpload, Lane::kUpload, -1, moves, false);
  }

  void give(ValueKind kind, int count) {
    std::vector<Access> got;
    std::vector<std::pair<Access, Access>> moves;
    for (int i = 0; i < count; ++i) {
      moves.push_back({close(Mode::kRead, kind, i), far(Mode::kWrite, kind, i)});
      got.push_back(far(Mode::kRead, kind, i));
    }
    if (shape_.discrete) move(OpKind::kDownload, Lane::kDownload, -1, moves, false);
    add(OpKind::kOutput, Lane::kOptimizer, -1, got);
  }

  void forward(int s, int i, Generation generation) {
    std::vector<Access> accesses = {weights(s, generation), activation(Mode::kWrite, s, i)};
    accesses.push_back(s > 0 ? activation(Mode::kRead, s - 1, i)
                             : close(Mode::kRead, ValueKind::kTokens, i));
    compute(OpKind::kForward, s, i, accesses);
  }

  void head(OpKind kind, int i, Generation generation) {
    std::vector<Access> accesses = {weights(kHead, generation),
                                    activation(Mode::kRead, kHead - 1, i)};
    if (shape_.tied) accesses.push_back(weights(kEmbed, generation));
    const bool logits = kind == OpKind::kLogits;
    accesses.push_back(close(Mode::kRead, logits ? ValueKind::kPositions : ValueKind::kTargets, i));
    accesses.push_back(close(Mode::kWrite, logits ? ValueKind::kLogits : ValueKind::kLossSum, i));
    if (kind == OpKind::kLoss) {
      accesses.push_back(activation_gradient(Mode::kWrite, kHead - 1, i));
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
    std::vector<Access> accesses = {activation_gradient(Mode::kRead, s, i)};
    if (s == kEmbed) accesses.push_back(close(Mode::kRead, ValueKind::kTokens, i));
    if (s == kMlp) {
      const Access interior =
          whole(Mode::kWrite, interior_, numbered(ValueKind::kInterior, s, i), 8192);
      compute(OpKind::kRecompute, s, i,
              {weights(s, generation), activation(Mode::kRead, s - 1, i), interior});
      Access input = interior;
      input.mode = Mode::kRead;
      accesses.insert(accesses.end(), {weights(s, generation), activation(Mode::kRead, s - 1, i),
                                       input, activation_gradient(Mode::kWrite, s - 1, i)});
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
    add(OpKind::kInput, Lane::kOptimizer, -1, {next_decision()});
    for (int s = 0; s < 3; ++s) {
      std::vector<Access> accesses;
      each_chunk(s, [&](int c, bool frozen) {
        for (const Plane p : kPlanes) {
          if (frozen && (p != Plane::kHi || from_source(s))) continue;
          accesses.push_back(part(Mode::kWrite, state_[s][static_cast<int>(p)], c,
                                  plane(s, p, Generation::kOld), width(p)));
        }
      });
      add(OpKind::kConvert, Lane::kOptimizer, s, accesses);
      spill(s, Generation::kOld, false, true);
    }
  }

  // All of them, as they are before and after they were summed over ranks.
  std::vector<Access> partials(std::initializer_list<Mode> modes) const {
    std::vector<Access> accesses;
    for (int s = 0; s < 3; ++s) {
      for (const Mode mode : modes) {
        Value value = numbered(ValueKind::kNormPartial, s, 0);
        value.reduced = sharded() && (mode == Mode::kWrite || modes.size() == 1);
        accesses.push_back(whole(mode, partial_[s], value, 16));
      }
    }
    return accesses;
  }

  void step() {
    begin(ProgramName::kStep);
    program_->accepts_pending = program_->leaves_pending = deferred();
    program_->final_generation = deferred() ? Generation::kUpdated : Generation::kNew;
    const Generation used = deferred() ? Generation::kUpdated : Generation::kOld;
    take({ValueKind::kTokens, ValueKind::kTargets}, shape_.micro_batches);
    for (int s = 0; s < 3; ++s) {
      fetch(s, {Plane::kHi}, Generation::kOld, Lane::kReadWeights);
      if (deferred()) update(s, used);
      bring(s, used);
      for (int i = 0; i < shape_.micro_batches; ++i) {
        s == kHead ? head(OpKind::kLoss, i, used) : forward(s, i, used);
      }
    }
    give(ValueKind::kLossSum, shape_.micro_batches);
    finish_gradient(kHead);
    for (int s = kMlp; s >= kEmbed; --s) {
      if (s == kMlp) {
        fetch(s, {Plane::kHi}, used, Lane::kReadWeights);
        bring(s, used);
      }
      for (int i = 0; i < shape_.micro_batches; ++i) backward(s, i, used);
      finish_gradient(s);
    }
    if (sharded()) add(OpKind::kReduce, Lane::kComm, -1, partials({Mode::kRead, Mode::kWrite}));
    decide(partials({Mode::kRead}));
  }

  void decide(std::vector<Access> accesses) {
    accesses.insert(accesses.begin(), {last_decision(), next_decision()});
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
    decide({});
  }

  void passes(ProgramName name, OpKind last) {
    begin(name);
    const bool logits = last == OpKind::kLogits;
    take({ValueKind::kTokens, logits ? ValueKind::kPositions : ValueKind::kTargets}, 1);
    for (int s = 0; s < 3; ++s) {
      fetch(s, {Plane::kHi}, Generation::kOld, Lane::kReadWeights);
      bring(s, Generation::kOld);
      s == kHead ? head(last, 0, Generation::kOld) : forward(s, 0, Generation::kOld);
    }
    give(logits ? ValueKind::kLogits : ValueKind::kLossSum, 1);
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

  Program* program_ = nullptr;
};

}  // namespace detail

inline Tiny make(const Shape& shape) {
  return detail::Builder(shape).build();
}

}  // namespace strata::plan::tiny
