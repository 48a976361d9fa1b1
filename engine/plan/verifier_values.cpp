// SPDX-License-Identifier: Apache-2.0
// Values: executes programs in order on names instead of bytes, for each value of `pending`.
#include <fmt/core.h>

#include <array>
#include <optional>

#include "engine/base/interval_map.h"
#include "engine/plan/verifier_parts.h"

namespace strata::plan::verifying {
namespace {

// A pending gradient and this step's have the same name, so the state tells them apart.
enum class Origin : uint8_t { kBefore, kHere };

// What an address holds: the packed name of a value, and the address that the value's byte 0 would
// have. The name 0 means nothing.
struct Content {
  uint64_t name = 0;
  int64_t base = 0;
  bool operator==(const Content&) const = default;
};

constexpr uint64_t kOriginBit = 1;
static_assert(kValueKindCount < 64);  // six bits of a name

// Runs programs, each from the boundary state, which is laid out once.
class Machine {
 public:
  Machine(const Facts& facts, bool pending, Reporter& reporter)
      : facts_(facts), pending_(pending), reporter_(reporter) {
    start([](const Value& value) { return value.kind == ValueKind::kCache; });
    empty_ = memory_;
    start([](const Value&) { return true; });
    boundary_ = memory_;
  }

  void run(const Program& program) {
    program_ = &program;
    memory_ = program.name == ProgramName::kLoad ? empty_ : boundary_;
    for (size_t i = 0; i < program.ops.size() && !reporter_.full(); ++i) {
      const Op& op = program.ops[i];
      if (op.predicate == Predicate::kPending && !pending_) continue;
      execute(static_cast<int64_t>(i), op);
    }
    finish();
  }

 private:
  using Memory = IntervalMap<Content>;
  using Memories = std::array<Memory, kArenaCount>;

  Memory& memory(Arena arena) { return memory_[static_cast<size_t>(arena)]; }

  // Planes and decisions differ by their generation, all other values by `reduced` and `index`.
  uint64_t name_of(const Value& value, bool frozen, Origin origin) const {
    const uint64_t kind = (static_cast<uint64_t>(value.kind) + 1) << 58;
    uint64_t detail = 0;
    uint64_t index = 0;
    if (value.kind == ValueKind::kPlane) {
      const Generation generation = frozen ? Generation::kOld : normal(value.generation, pending_);
      detail = static_cast<uint64_t>(value.plane) << 2 | static_cast<uint64_t>(generation);
    } else if (value.kind == ValueKind::kDecision) {
      return kind | static_cast<uint64_t>(value.generation) << 4;
    } else {
      detail = (value.reduced & 0xfu) | (value.reduced & 0xf0ull) << 24;
      index = static_cast<uint64_t>(value.index);
    }
    const uint64_t bit =
        value.kind == ValueKind::kGradient && origin == Origin::kHere ? kOriginBit : 0;
    return kind | (index & 0x3fffffu) << 36 |
           (static_cast<uint64_t>(value.segment) & 0xffffffu) << 8 | detail << 4 | bit;
  }

  // Calls f(offset, end, content) for the trainable and for the frozen part of a range.
  template <class F>
  void pieces(int64_t offset, int64_t bytes, int64_t first, const Value& value, Origin origin,
              F f) {
    const int64_t base = offset - first;
    int64_t border = first + bytes;
    if (value.kind == ValueKind::kPlane) {
      const int64_t trainable =
          facts_.segment(value.segment).trainable_numel * facts_.width(value.plane);
      border = std::min(std::max(trainable, first), first + bytes);
    }
    if (border > first) f(offset, base + border, Content{name_of(value, false, origin), base});
    if (border < first + bytes) {
      f(base + border, offset + bytes, Content{name_of(value, true, origin), base});
    }
  }

  // The bytes of an access: what is live when the program begins is on the first side.
  int64_t place_of(const Access& access) const {
    return access.offset +
           (side_of(access, pending_) == Side::kOther ? facts_.plan.sides.bytes : 0);
  }

  template <class Chosen>
  void start(Chosen chosen) {
    for (const Holding& holding : facts_.plan.boundary) {
      if (!chosen(holding.value) || (holding.only_if_pending && !pending_)) continue;
      pieces(holding.offset, holding.bytes, holding.first, holding.value, Origin::kBefore,
             [&](int64_t begin, int64_t end, const Content& content) {
               memory(holding.arena).assign(begin, end, content);
             });
    }
  }

  void report(const char* kind, int64_t op, const Value& value, int64_t begin, const char* what) {
    reporter_.add(kind, program_->name, op,
                  fmt::format("{}: at {} {}{}", describe(facts_, value), begin, what,
                              pending_ ? " (pending)" : ""));
  }

  // Checks one range and collects the origins that it finds in `seen`.
  void look(int64_t op, Arena arena, int64_t begin, int64_t end, const Value& value,
            const Content& wanted, std::array<bool, 2>& seen) {
    bool reported = false;
    memory(arena).each(begin, end, [&](int64_t low, int64_t, const Content& found) {
      if ((found.name & ~kOriginBit) == (wanted.name & ~kOriginBit) && found.base == wanted.base) {
        seen[found.name & kOriginBit] = true;
        return;
      }
      if (reported) return;
      reported = true;
      if (found.name == 0) {
        report("unwritten", op, value, low, "nothing is there");
      } else {
        report("stale", op, value, low,
               found.name == wanted.name ? "it lies otherwise" : "another value is there");
      }
    });
  }

  void execute(int64_t index, const Op& op) {
    std::array<bool, 2> seen = {};
    for (const Access& access : program_->accesses_of(op)) {
      if (access.mode != Mode::kRead) continue;
      std::array<bool, 2> origins = {};
      pieces(place_of(access), access.bytes, access.first, access.value, Origin::kBefore,
             [&](int64_t begin, int64_t end, const Content& content) {
               look(index, access.arena, begin, end, access.value, content, origins);
             });
      if (access.value.kind != ValueKind::kGradient) continue;
      check_origin(index, op, access.value, origins);
      seen[0] |= origins[0];
      seen[1] |= origins[1];
    }
    if (seen[0] && seen[1]) {
      reporter_.add("stale", program_->name, index, "mixes pending gradients with this step's");
    }
    const Origin origin = seen[0] ? Origin::kBefore : Origin::kHere;
    for (const Access& access : program_->accesses_of(op)) {
      if (access.mode != Mode::kWrite) continue;
      if (access.value.kind == ValueKind::kScratch) {
        memory(access.arena).assign(access.offset, access.offset + access.bytes, Content{});
        continue;
      }
      pieces(place_of(access), access.bytes, access.first, access.value, origin,
             [&](int64_t begin, int64_t end, const Content& content) {
               memory(access.arena).assign(begin, end, content);
             });
    }
  }

  void check_origin(int64_t index, const Op& op, const Value& value,
                    const std::array<bool, 2>& origins) {
    if (is_transfer(op.kind)) return;
    const bool wants_before = op.kind == OpKind::kOptimize && op.predicate == Predicate::kPending;
    if (!origins[wants_before ? 1 : 0]) return;
    reporter_.add("stale", program_->name, index,
                  fmt::format("{}: {}", describe(facts_, value),
                              wants_before ? "the pending one is wanted, this step's is there"
                                           : "the pending one is there, this step's is wanted"));
  }

  // Whether the program must leave another decision than it found.
  bool decides() const {
    return program_->name == ProgramName::kLoad || program_->name == ProgramName::kStep ||
           program_->name == ProgramName::kDrain;
  }

  // Checks that the program ends in the boundary state: on the other side where it updates.
  void finish() {
    for (const Holding& holding : facts_.plan.boundary) {
      if (holding.only_if_pending && !program_->leaves_pending) continue;
      Value value = holding.value;
      if (value.kind == ValueKind::kPlane) value.generation = program_->final_generation;
      if (value.kind == ValueKind::kDecision && decides()) value.generation = Generation::kNew;
      const bool other = holding.arena == Arena::kNvme && program_->flips(pending_) &&
                         facts_.plan.sides.contain(holding.offset);
      const int64_t offset = holding.offset + (other ? facts_.plan.sides.bytes : 0);
      pieces(offset, holding.bytes, holding.first, value, Origin::kHere,
             [&](int64_t begin, int64_t end, const Content& content) {
               expect(holding, value, begin, end, content);
             });
    }
  }

  void expect(const Holding& holding, const Value& value, int64_t begin, int64_t end,
              const Content& content) {
    bool reported = false;
    memory(holding.arena).each(begin, end, [&](int64_t low, int64_t, const Content& found) {
      if (reported || found == content) return;
      reported = true;
      report("boundary", -1, value, low,
             found.name == 0 ? "nothing is there at the end" : "another value is there at the end");
    });
  }

  const Facts& facts_;
  const bool pending_;
  Reporter& reporter_;
  Memories empty_;  // before load: caches, which begin without keys and values
  Memories boundary_;
  const Program* program_ = nullptr;
  Memories memory_;
};

}  // namespace

void check_values(const Facts& facts, std::span<const Program* const> programs, bool pending,
                  Reporter& reporter) {
  std::optional<Machine> machine;
  for (const Program* program : programs) {
    if (program->ops.empty() || (pending && !program->accepts_pending)) continue;
    if (!machine) machine.emplace(facts, pending, reporter);
    machine->run(*program);
  }
}

}  // namespace strata::plan::verifying
