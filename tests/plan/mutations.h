// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "engine/model/spec.h"
#include "engine/plan/op_contract.h"
#include "engine/plan/plan.h"
#include "tests/plan/layout_mutations.h"

// Puts one random bug into any plan that verifies cleanly. Every change is wrong by construction: a
// wait is touched only where without it two conflicting ops are unordered, a write only where a
// later op needs it. So a verifier must reject every plan for which mutate() returned true.
namespace strata::plan::mutations {

enum class MutationKind : uint8_t {
  kDropWait,
  kWeakenWait,
  kWaitForLater,
  kWaitBeyondStep,
  kSwapInLane,
  kRemoveOp,
  kRepeatOp,
  kDropPredicate,
  kAddPredicate,
  kLoseDecision,
  kShiftRead,
  kShiftWrite,
  kShiftFirst,
  kShortRead,
  kWrongGeneration,
  kWrongPlane,
  kWrongSegment,
  kWrongContributions,
  kWrongReaders,
  kMisalign,
  kReadScratch,
  kOverBudget,
  kOverlapLines,
  kMoveHolding,
  kFlipSide,
  kWrongPart,
  kWrongGroup,
};
inline constexpr int kMutationKindCount = static_cast<int>(MutationKind::kWrongGroup) + 1;

// False where the plan has no place for this kind of bug; then the plan is unchanged.
bool mutate(Plan& plan, MutationKind kind, uint64_t seed);

namespace detail {

inline bool overlap(const Access& a, const Access& b) {
  return a.arena == b.arena && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

inline bool conflict(const Program& program, const Op& a, const Op& b) {
  for (const Access& x : program.accesses_of(a)) {
    for (const Access& y : program.accesses_of(b)) {
      if ((x.mode == Mode::kWrite || y.mode == Mode::kWrite) && overlap(x, y)) return true;
    }
  }
  return false;
}

class Mutator {
 public:
  Mutator(Plan& plan, uint64_t seed) : plan_(plan), random_(seed) {}

  bool apply(MutationKind kind) {
    if (kind == MutationKind::kOverBudget) return over_budget(plan_, random_);
    if (kind == MutationKind::kOverlapLines) return overlap_lines(plan_, random_);
    if (kind == MutationKind::kMoveHolding) return move_holding(plan_, random_);
    std::vector<int> order = {0, 1, 2, 3, 4, 5};
    std::shuffle(order.begin(), order.end(), random_);
    for (const int which : order) {
      program_ = &plan_.programs[which];
      if (!program_->ops.empty() && apply_here(kind)) return true;
    }
    return false;
  }

 private:
  size_t pick(size_t count) { return detail::pick(random_, count); }

  bool apply_here(MutationKind kind) {
    if (kind == MutationKind::kSwapInLane) return swap_in_lane();
    for (int i = 0; i < kTries; ++i) {
      const uint32_t op = static_cast<uint32_t>(pick(program_->ops.size()));
      if (change_waits(kind, op) || change_op(kind, op) || change_access(kind, op)) return true;
    }
    return false;
  }

  int lane_count(Lane lane) const {
    return static_cast<int>(program_->lanes[static_cast<size_t>(lane)].size());
  }

  // ---- waits

  bool change_waits(MutationKind kind, uint32_t index) {
    const Op& op = program_->ops[index];
    if (op.wait_begin == op.wait_end) return false;
    const uint32_t at = op.wait_begin + static_cast<uint32_t>(pick(op.wait_end - op.wait_begin));
    Wait& wait = program_->waits[at];
    const Lane lane = wait.lane;
    const int step_count =
        static_cast<int>(plan_.program(ProgramName::kStep).lanes[static_cast<size_t>(lane)].size());
    const Wait old = wait;
    switch (kind) {
      case MutationKind::kDropWait:
        wait.count = -step_count;
        break;
      case MutationKind::kWeakenWait:
        if (wait.count == -step_count) return false;
        wait.count = wait.count == 1 ? -step_count : wait.count - 1;
        break;
      case MutationKind::kWaitForLater:
        wait.count = lane_count(lane) + 1;
        return true;
      case MutationKind::kWaitBeyondStep:
        wait.count = -step_count - 1;
        return true;
      default:
        return false;
    }
    if (races(index, old)) return true;
    wait = old;
    return false;
  }

  // Whether, with the waits as they are now, the op may run before one that it conflicts with and
  // that the old wait named.
  bool races(uint32_t index, const Wait& old) const {
    const bool before = old.count <= 0;
    if (before && program_->name != ProgramName::kStep) return false;
    const size_t lane = static_cast<size_t>(old.lane);
    const int count = lane_count(old.lane);
    const int copy = before ? 1 : 0;
    const int known = clock(index, copy)[lane];
    const int named = before ? count + old.count : old.count;
    for (int place = known; place < named; ++place) {
      if (conflict(*program_, program_->ops[index], program_->ops[program_->lanes[lane][place]])) {
        return true;
      }
    }
    return false;
  }

  using Clock = std::array<int, kLaneCount>;

  // How many ops of each lane have completed when an op of the given copy of the program is issued.
  Clock clock(uint32_t index, int copy) const {
    std::array<std::vector<Clock>, kLaneCount> issued;
    for (int c = 0;; ++c) {
      for (uint32_t i = 0; i < program_->ops.size(); ++i) {
        const Op& op = program_->ops[i];
        std::vector<Clock>& mine = issued[static_cast<size_t>(op.lane)];
        Clock known = mine.empty() ? Clock{} : mine.back();
        if (is_serial(op.lane)) known[static_cast<size_t>(op.lane)] = static_cast<int>(mine.size());
        for (const Wait& wait : program_->waits_of(op)) {
          const size_t lane = static_cast<size_t>(wait.lane);
          const int target = c * lane_count(wait.lane) + wait.count;
          if (target <= 0 || (wait.count <= 0 && c == 0)) continue;
          const Clock& other = issued[lane][static_cast<size_t>(target) - 1];
          for (int k = 0; k < kLaneCount; ++k) known[k] = std::max(known[k], other[k]);
          known[lane] = std::max(known[lane], target);
        }
        if (c == copy && i == index) return known;
        mine.push_back(known);
      }
    }
  }

  bool swap_in_lane() {
    for (int i = 0; i < kTries; ++i) {
      std::vector<uint32_t>& list = program_->lanes[pick(kLaneCount)];
      if (list.size() < 2) continue;
      const size_t at = pick(list.size() - 1);
      std::swap(list[at], list[at + 1]);
      return true;
    }
    return false;
  }

  // ---- ops

  bool change_op(MutationKind kind, uint32_t index) {
    Op& op = program_->ops[index];
    switch (kind) {
      case MutationKind::kRemoveOp:
        if (!counted(op) && !needed(index)) return false;
        remove(index);
        return true;
      case MutationKind::kRepeatOp:
        if (!counted(op) || op.kind == OpKind::kNormPartial) return false;
        repeat(index);
        return true;
      case MutationKind::kDropPredicate:
        if (op.kind != OpKind::kOptimize || op.predicate != Predicate::kPending) return false;
        op.predicate = Predicate::kAlways;
        return true;
      case MutationKind::kAddPredicate:
        if (op.predicate == Predicate::kPending) return false;
        op.predicate = Predicate::kPending;
        return true;
      case MutationKind::kWrongPart:
        if (op.kind < OpKind::kForward || op.kind > OpKind::kLogits) return false;
        op.part ^= 1;
        return true;
      case MutationKind::kWrongGroup:
        if (!is_comm_lane(op.lane)) return false;
        op.group = static_cast<GroupName>((static_cast<int>(op.group) + 1 + pick(kGroupCount - 1)) %
                                          kGroupCount);
        return true;
      case MutationKind::kLoseDecision:
        if (op.predicate != Predicate::kPending && op.kind != OpKind::kOptimize &&
            op.kind != OpKind::kDecide) {
          return false;
        }
        for (uint32_t a = op.access_begin; a < op.access_end; ++a) {
          Value& value = program_->accesses[a].value;
          if (value.kind == ValueKind::kDecision) value.generation = Generation::kNew;
        }
        return true;
      default:
        return false;
    }
  }

  // Ops that a program must have exactly once.
  bool counted(const Op& op) const {
    const bool step = program_->name == ProgramName::kStep;
    if (op.kind == OpKind::kOptimize || op.kind == OpKind::kDecide) return true;
    if (op.kind == OpKind::kNormPartial) return step;
    if (op.kind == OpKind::kForward || op.kind == OpKind::kLoss) return step;
    return false;
  }

  // Whether an access writes what was not there before and what a later op reads from there: the
  // last op before it that wrote any of it wrote something else, and the next that touches it reads
  // it.
  bool needed(uint32_t index, const Access& write) const {
    if (write.mode == Mode::kRead || write.value.kind == ValueKind::kScratch) return false;
    bool fresh = program_->name == ProgramName::kLoad;
    if (!fresh) {
      fresh = std::none_of(plan_.boundary.begin(), plan_.boundary.end(), [&](const Holding& h) {
        return h.arena == write.arena && h.offset < write.offset + write.bytes &&
               write.offset < h.offset + h.bytes;
      });
    }
    for (uint32_t i = 0; i < index; ++i) {
      for (const Access& access : program_->accesses_of(program_->ops[i])) {
        if (access.mode == Mode::kWrite && overlap(access, write)) {
          fresh = access.value.kind != write.value.kind ||
                  access.value.segment != write.value.segment ||
                  access.value.plane != write.value.plane;
        }
      }
    }
    if (!fresh) return false;
    for (uint32_t i = index + 1; i < program_->ops.size(); ++i) {
      const Op& later = program_->ops[i];
      for (const Access& access : program_->accesses_of(later)) {
        if (access.mode == Mode::kRead && overlap(access, write)) {
          return later.predicate == Predicate::kAlways && access.value.kind == write.value.kind;
        }
      }
      for (const Access& access : program_->accesses_of(later)) {
        if (access.mode == Mode::kWrite && overlap(access, write)) return false;
      }
    }
    return false;
  }

  bool needed(uint32_t index) const {
    const Op& op = program_->ops[index];
    if (op.predicate == Predicate::kPending) return false;
    for (const Access& access : program_->accesses_of(op)) {
      if (needed(index, access)) return true;
    }
    return false;
  }

  int place_of(uint32_t index) const {
    const std::vector<uint32_t>& list =
        program_->lanes[static_cast<size_t>(program_->ops[index].lane)];
    return static_cast<int>(std::lower_bound(list.begin(), list.end(), index) - list.begin());
  }

  // Both keep every other op's waits on what they named.
  void remove(uint32_t index) {
    const Lane lane = program_->ops[index].lane;
    const int place = place_of(index);
    std::vector<uint32_t>& list = program_->lanes[static_cast<size_t>(lane)];
    list.erase(list.begin() + place);
    const int left = static_cast<int>(list.size());
    for (std::vector<uint32_t>& each : program_->lanes) {
      for (uint32_t& i : each) i -= i > index ? 1 : 0;
    }
    for (Wait& wait : program_->waits) {
      if (wait.lane != lane) continue;
      if (wait.count == 1 && place == 0) {
        wait.count = -left;
      } else if (wait.count > place) {
        --wait.count;
      }
      if (program_->name == ProgramName::kStep && wait.count <= 0)
        wait.count = std::max(wait.count, -left);
    }
    program_->ops.erase(program_->ops.begin() + index);
  }

  void repeat(uint32_t index) {
    const Op copy = program_->ops[index];
    const int place = place_of(index);
    for (std::vector<uint32_t>& each : program_->lanes) {
      for (uint32_t& i : each) i += i > index ? 1 : 0;
    }
    std::vector<uint32_t>& list = program_->lanes[static_cast<size_t>(copy.lane)];
    list.insert(list.begin() + place + 1, index + 1);
    for (Wait& wait : program_->waits) {
      if (wait.lane == copy.lane && wait.count > place) ++wait.count;
    }
    program_->ops.insert(program_->ops.begin() + index + 1, copy);
  }

  // ---- accesses

  bool change_access(MutationKind kind, uint32_t index) {
    const Op& op = program_->ops[index];
    if (op.access_begin == op.access_end) return false;
    Access& access = program_->accesses[op.access_begin + pick(op.access_end - op.access_begin)];
    if (access.value.kind == ValueKind::kDecision) return false;
    const bool scratch = access.value.kind == ValueKind::kScratch;
    if (kind == MutationKind::kReadScratch) {
      if (scratch) access.mode = Mode::kRead;
      return scratch;
    }
    if (scratch) return false;
    if (kind == MutationKind::kMisalign) {
      if (op.kind != OpKind::kFetch && op.kind != OpKind::kSpill) return false;
      access.offset += 512;
      return true;
    }
    if (kind == MutationKind::kFlipSide && access.arena == Arena::kNvme) {
      access.side = access.side == Side::kLive ? Side::kOther : Side::kLive;
      return true;
    }
    if (kind == MutationKind::kShiftWrite) {
      if (op.predicate == Predicate::kPending || !needed(index, access)) return false;
      access.offset += access.arena == Arena::kControl ? access.bytes : 4096;
      return true;
    }
    if (kind == MutationKind::kWrongReaders) {
      if (access.value.kind != ValueKind::kActivationGradient) return false;
      access.value.reduced += access.value.reduced > 0 ? -1 : 1;
      return true;
    }
    return access.mode == Mode::kRead && change_read(kind, access);
  }

  bool change_read(MutationKind kind, Access& access) {
    Value& value = access.value;
    const bool plane = value.kind == ValueKind::kPlane;
    switch (kind) {
      case MutationKind::kShiftRead:
        access.offset += access.arena == Arena::kControl ? access.bytes : 4096;
        return true;
      case MutationKind::kShiftFirst:
        access.first += 4096;
        return true;
      case MutationKind::kShortRead:
        if (!plane || program_->name == ProgramName::kCheckpoint || access.bytes < 8192)
          return false;
        access.bytes -= 4096;
        return true;
      case MutationKind::kWrongGeneration:
        if (!plane || frozen(plan_, value.segment)) return false;
        value.generation =
            value.generation == Generation::kNew ? Generation::kOld : Generation::kNew;
        return true;
      case MutationKind::kWrongPlane:
        if (!plane) return false;
        value.plane = value.plane == Plane::kExpAvg ? Plane::kExpAvgSq : Plane::kExpAvg;
        return true;
      case MutationKind::kWrongSegment:
        if (value.segment < 0) return false;
        value.segment += value.segment > 0 ? -1 : 1;
        return true;
      case MutationKind::kWrongContributions:
        if (value.kind != ValueKind::kGradient) return false;
        value.index += value.index > 1 ? -1 : 1;
        return true;
      default:
        return false;
    }
  }

  Plan& plan_;
  std::mt19937_64 random_;
  Program* program_ = nullptr;
};

}  // namespace detail

inline bool mutate(Plan& plan, MutationKind kind, uint64_t seed) {
  return detail::Mutator(plan, seed).apply(kind);
}

}  // namespace strata::plan::mutations
